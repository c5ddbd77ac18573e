"""Bad scans among good ones: flipped, tilted, cropped, or of another modality.

A model is fitted to slices of brains of which some were spoilt, and the page of
``anamorph quality`` is asked where it ranks them.

    python -m examples.raw.quality SLICES.npz -o quality.html

SLICES.npz holds arrays ``t1`` and ``wm`` (N, rows, columns) of 8 bits, of the same slices.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import rotate

from anamorph import ShapeAppearanceModel
from anamorph.report import write_quality
from anamorph.report.judging import Judgement

KINDS = ("flipped", "tilted", "cropped", "modality")
#: What the reason that is told first begins with.
WORDS = {"flipped": "flipped", "tilted": "tilted", "cropped": "cropped", "modality": "of another"}


def spoil(
    images: NDArray[np.float32], others: NDArray[np.float32], n_each: int, seed: int
) -> tuple[NDArray[np.float32], dict[int, str]]:
    """Return images with some of them spoilt, and the kind of each that was.

    Parameters
    ----------
    images, others : arrays of shape (N, rows, columns)
        Slices of two modalities, with front and back along the first axis.
    n_each : int
        How many images of each kind to spoil.
    seed : int
    """
    draws, spoilt = np.random.default_rng(seed), images.copy()
    chosen = draws.permutation(len(images))[: n_each * len(KINDS)].reshape(len(KINDS), n_each)
    for n in chosen[0]:
        spoilt[n] = images[n, ::-1]
    for n in chosen[1]:
        angle = draws.choice([-1, 1]) * draws.uniform(12, 25)
        spoilt[n] = rotate(images[n], angle, reshape=False, order=1)
    for n in chosen[2]:
        length = int(draws.uniform(0.2, 0.4) * images.shape[1])
        spoilt[n, : length if draws.random() < 0.5 else None] *= 0
        if not spoilt[n].any():
            spoilt[n] = images[n]
            spoilt[n, -length:] = 0
    for n in chosen[3]:
        spoilt[n] = others[(n + len(images) // 2) % len(images)]
    kinds = zip(KINDS, chosen, strict=True)
    return spoilt, {int(n): kind for kind, numbers in kinds for n in numbers}


def rank_spoilt(
    images: NDArray[np.float32],
    kinds: dict[int, str],
    path: Path,
    n_components: int = 8,
    n_iter: int = 8,
) -> tuple[list[Judgement], list[int], int]:
    """Fit a model to all images, write the page, and find the spoilt ones on it.

    Returns
    -------
    judged : list of Judgement
    ranks : list of int
        Of the spoilt images, from 1.
    n_told : int
        Of how many the first reason is the right one.
    """
    model = ShapeAppearanceModel(n_components, n_iter=n_iter).fit(images)
    judged = write_quality(model, path, images, latents=model.latents_)
    ranks = {one.number: rank for rank, one in enumerate(judged, start=1)}
    first = {one.number: (*one.reasons, "")[0] for one in judged}
    n_told = sum(first[n].startswith(WORDS[kind]) for n, kind in kinds.items())
    return judged, sorted(ranks[n] for n in kinds), n_told


def main(arguments: Sequence[str] | None = None) -> None:
    """Spoil five images of each kind, with several seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("slices", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("quality.html"))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--reduce", type=int, default=1, help="take every n-th row and column")
    given = parser.parse_args(arguments)
    with np.load(given.slices) as stored:
        step = slice(None, None, given.reduce)
        images, others = (stored[key][:, step, step] / np.float32(255) for key in ("t1", "wm"))
    for seed in range(given.seeds):
        spoilt, kinds = spoil(images, others, 5, seed)
        _, ranks, n_told = rank_spoilt(spoilt, kinds, given.output)
        n_found = sum(rank <= 25 for rank in ranks)
        print(
            f"seed {seed}: {n_found} of {len(ranks)} spoilt images among the first 25 of "
            f"{len(images)}, the last at {ranks[-1]}; {n_told} for the right reason",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
