"""Measure what settings do: fit some digits, judge others, write the table of docs/settings.md.

    python docs/scripts/measure_settings.py

The table is kept in the repository, since it takes minutes to make.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from anamorph import ShapeAppearanceModel
from anamorph.datasets import digits
from anamorph.geometry import jacobian_determinant
from anamorph.likelihoods import LIKELIHOODS

TABLE = Path(__file__).parents[1] / "measured-settings.md"
USUAL: dict[str, Any] = {"n_components": 16, "likelihood": "bernoulli", "n_iter": 12}
HEADER = (
    "| setting | evidence | reconstruction | hidden square | Jacobian |\n"
    "|---|---:|---:|---:|---:|\n"
)


def scaled(name: str, factor: float) -> dict[str, Any]:
    """Return a penalty of binary images, its weights multiplied by a factor."""
    weights = LIKELIHOODS["bernoulli"].default_penalties[name]
    return {f"{name}_penalty": tuple(factor * weight for weight in weights)}


def variations() -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield what is changed, in words and as arguments, one thing at a time."""
    yield "**defaults**, 16 components, 12 iterations", {}
    for n in (2, 4, 8, 32, 64):
        yield f"`n_components={n}`", {"n_components": n}
    yield '`latents="separate"`, (8, 8)', {"latents": "separate", "n_components": (8, 8)}
    yield '`latents="shape"`', {"latents": "shape"}
    yield '`latents="appearance"`', {"latents": "appearance"}
    for name in ("shape", "appearance", "mean"):
        for factor in (0.1, 10, 100):
            yield f"`{name}_penalty` × {factor:g}", scaled(name, factor)
    for balance in ((0.95, 0.05), (1.0, 0.0), (5.0, 5.0)):
        yield f"`balance={balance}`", {"balance": balance}
    for dof in (100, 1000):
        yield f"`prior_dof={dof}`", {"prior_dof": dof}
    for n in (3, 6, 24):
        yield f"`n_iter={n}`", {"n_iter": n}
    for n in (2, 4, 16):
        yield f"`n_steps={n}`", {"n_steps": n}
    yield "`decimation=0.3`", {"decimation": 0.3}


def judged(arguments: dict[str, Any]) -> str:
    """Fit the first 300 digits, and return the row of measures of the other 100."""
    images = digits()[0] / np.float32(255)
    model = ShapeAppearanceModel(**USUAL | arguments).fit(images[:300])
    others = images[300:]
    hidden = others.copy()
    hidden[:, 9:19, 9:19] = np.nan
    latents = model.transform(others)
    reconstruction = root_mean_square(model.inverse_transform(latents) - others)
    filled = root_mean_square((model.impute(hidden) - others)[:, 9:19, 9:19])
    smallest = jacobian_determinant(model.displacement(latents)).min()
    evidence = f"{model.score(others):.1f}".replace("-", "\N{MINUS SIGN}")
    return f"{evidence} | {reconstruction:.3f} | {filled:.3f} | {smallest:.2f}"


def root_mean_square(difference: np.ndarray) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(difference**2)))


if __name__ == "__main__":
    rows = []
    for words, arguments in variations():
        rows.append(f"| {words} | {judged(arguments)} |\n")
        print(rows[-1], end="", flush=True)
        TABLE.write_text(HEADER + "".join(rows), encoding="utf-8")
