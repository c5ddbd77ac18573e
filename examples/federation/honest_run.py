"""What an honest fit tells its coordinator about single images, as images per component fall.

python -m examples.federation.honest_run FOLDER [FACES]

The coordinator is honest but curious: it runs the program as it is, sees nothing but totals over
all sites, and then takes them apart (`recorded_run`, `separation`). Numbers go to the terminal and
to FOLDER, a figure too. FACES is a file of photographs with arrays x (N, height, width, 3) and
person (N,); without it only digits are attacked.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from anamorph import ShapeAppearanceModel
from anamorph.datasets import digits
from anamorph.fitting.sums import Sums
from examples.federation.recorded_run import Seen, record
from examples.federation.separation import (
    distance_from_span,
    images_by_moments,
    images_by_span,
    independent_components,
    likeness,
    matched_images,
    ranked_right,
)

Array = NDArray[np.float64]

N_COMPONENTS = 8
N_OTHERS = 100
RATIOS = (1.2, 2.0, 5.0, 10.0, 20.0, 37.0)
TOLERANCES = (1e-4, 1e-3, 1e-1)
# Of all settings that a coordinator may choose, those with which sums tell most: free appearance.
_FREE = {"likelihood": "gaussian", "appearance_penalty": (0.01, 1.0, 1.0)}
KINDS = {
    "digits, appearance only": {**_FREE, "latents": "appearance"},
    "digits, shape and appearance": _FREE,
    "digits, stiff": {**_FREE, "shape_penalty": (1e3,) * 5},
    "digits, Bernoulli": {"likelihood": "bernoulli"},
    "faces, appearance only": {**_FREE, "latents": "appearance"},
    "faces, shape and appearance": _FREE,
}


@dataclass(frozen=True)
class Finding:
    """How like single images the best attack is, for those in the fit and for others.

    Attributes
    ----------
    kind : str
    ratio : float
        Images per component.
    n_images, n_iterations : int
    attack : str
        Which attack was best for the coordinator.
    members, others : float
        Median, over images, of the largest correlation with anything recovered.
    largest_member, largest_other : float
        The largest of them.
    recovered : float
        Share of the images in the fit that are recovered with a correlation above 0.95.
    auc : float
        Whether an image was in the fit, told by its distance from the span of the totals.
    seconds : float
    """

    kind: str
    ratio: float
    n_images: int
    n_iterations: int
    attack: str
    members: float
    others: float
    largest_member: float
    largest_other: float
    recovered: float
    auc: float
    seconds: float


def attacks_on(seen: Seen) -> dict[str, Array]:
    """Return what each attack recovers, (M, V) less the mean, by its name."""
    span = images_by_span(seen)
    recovered = {
        "components": independent_components(span),
        "matching the span": matched_images(span, seen),
    }
    for tolerance in TOLERANCES:
        rows = images_by_moments(seen, tolerance)
        recovered[f"matching moments to {tolerance:g}"] = matched_images(rows, seen)
    return recovered


def measure(
    kind: str,
    members: NDArray[np.floating],
    others: NDArray[np.floating],
    n_iterations: int = 20,
    change: Callable[[str, Sums], Sums] | None = None,
) -> tuple[Finding, Array]:
    """Attack a fit to some images; return the best attack and what it recovered."""
    started = time.perf_counter()
    model = ShapeAppearanceModel(N_COMPONENTS, n_iter=n_iterations, **KINDS[kind])  # type: ignore[arg-type]
    seen = record(members, model, change)
    own, foreign = (
        images.reshape(len(images), -1).astype(np.float64) for images in (members, others)
    )
    found = {}
    for name, recovered in attacks_on(seen).items():
        alike = likeness(recovered, own, seen.mean), likeness(recovered, foreign, seen.mean)
        found[name] = (*alike, recovered)
    # The attacker is given the best: that by which members stand out most from others.
    best = max(found, key=lambda name: float(np.median(found[name][0]) - np.median(found[name][1])))
    inside, outside, recovered = found[best]
    finding = Finding(
        kind,
        len(members) / N_COMPONENTS,
        len(members),
        n_iterations,
        best,
        float(np.median(inside)),
        float(np.median(outside)),
        float(inside.max()),
        float(outside.max()),
        float(np.mean(inside > 0.95)),
        ranked_right(distance_from_span(seen, own), distance_from_span(seen, foreign)),
        time.perf_counter() - started,
    )
    return finding, recovered


def images_of(kind: str, faces: Path | None) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return images to fit, and others of the same kind."""
    if kind.startswith("digits"):
        images = digits()[0].astype(np.float32) / 255
        return images[:-N_OTHERS], images[-N_OTHERS:]
    if faces is None:
        raise ValueError("faces need a file of photographs")
    with np.load(faces) as arrays:
        grey = arrays["x"].astype(np.float32).mean(axis=-1) / 255
        people = np.unique(arrays["person"])
        is_member = np.isin(arrays["person"], people[: round(0.8 * len(people))])
    n, height, width = grey.shape
    small = grey.reshape(n, height // 4, 4, width // 4, 4).mean(axis=(2, 4))
    return small[is_member], small[~is_member]


def told(finding: Finding) -> str:
    """Return a finding as a line of a table."""
    return (
        f"{finding.kind:30s} {finding.ratio:5.1f} {finding.n_images:5d} {finding.n_iterations:4d} "
        f"{finding.members:7.2f} {finding.others:7.2f} {finding.largest_member:7.2f} "
        f"{finding.largest_other:7.2f} {finding.recovered:7.0%} {finding.auc:6.2f}  "
        f"{finding.attack} ({finding.seconds:.0f} s)"
    )


HEADING = (
    f"{'':30s} {'N/K':>5} {'N':>5} {'iter':>4} {'members':>7} {'others':>7} {'largest':>7} "
    f"{'other':>7} {'found':>7} {'AUC':>6}  attack"
)


def main(folder: Path, faces: Path | None, kinds: list[str]) -> None:
    """Attack all kinds of fits with all numbers of images."""
    folder.mkdir(parents=True, exist_ok=True)
    print(HEADING)
    for kind in kinds:
        members, others = images_of(kind, faces)
        findings, drawn = [], {}
        for ratio in RATIOS:
            n_images = round(ratio * N_COMPONENTS)
            if n_images > len(members):
                continue
            finding, recovered = measure(kind, members[:n_images], others)
            print(told(finding), flush=True)
            findings.append(asdict(finding))
            drawn[ratio] = nearest(recovered, members[:n_images])
        name = kind.replace(", ", "-").replace(" ", "-")
        (folder / f"{name}.json").write_text(json.dumps(findings, indent=1) + "\n")
        draw(drawn, members, folder / f"{name}.png")


def nearest(recovered: Array, images: NDArray[np.floating], n_shown: int = 5) -> Array:
    """Return, for the first images, what was recovered of each, with its sign and the mean."""
    flat = images.reshape(len(images), -1).astype(np.float64)
    mean = flat.mean(axis=0)
    own = flat[:n_shown] - mean
    units = recovered / (np.linalg.norm(recovered, axis=1, keepdims=True) + 1e-12)
    products = own @ units.T
    chosen = np.abs(products).argmax(axis=1)
    scale = products[np.arange(len(own)), chosen]
    return np.asarray((scale[:, None] * units[chosen] + mean).reshape(len(own), *images.shape[1:]))


def draw(drawn: dict[float, Array], images: NDArray[np.floating], path: Path) -> None:
    """Draw the first images, and what was recovered of them."""
    rows = [("images", images[:5])]
    rows += [(f"N/K = {ratio:g}", found) for ratio, found in drawn.items()]
    figure, panels = plt.subplots(len(rows), 5, figsize=(4.4, 0.85 * len(rows)))
    for axes, (name, shown) in zip(panels, rows, strict=True):
        for panel, image in zip(axes, shown, strict=True):
            panel.imshow(image, cmap="gray_r" if "digits" in path.name else "gray", vmin=0, vmax=1)
            panel.set(xticks=[], yticks=[])
        axes[0].set_ylabel(name, fontsize=7, rotation=0, ha="right", va="center")
    figure.subplots_adjust(left=0.2, right=0.99, top=0.99, bottom=0.01, wspace=0.05, hspace=0.05)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    photographs = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    wanted = [kind for kind in KINDS if photographs or kind.startswith("digits")]
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."), photographs, wanted)
