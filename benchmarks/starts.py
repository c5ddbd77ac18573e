"""What the place from which encoding starts changes: evidence and errors of classified digits.

    python -m benchmarks.starts --mnist FILE --n 1000 --device cuda

Models of the ten digits are learnt from the first n training images of MNIST. Digits from the end
of the training images, which no model has seen, are encoded by each of them from several starts.
Test digits are not looked at, so that what is chosen here can be tried on them.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path

import numpy as np

from anamorph import EvidenceClassifier, ShapeAppearanceModel, preset
from anamorph.arrays.typing import Array, Float64Array
from anamorph.model.encoding import Encoded, best_guesses, encode
from anamorph.model.generator import Generator
from anamorph.model.predicting import Predictor

STARTS = ("default", "guess", "regression", "mean", "shrunk")
FIRST_UNSEEN = 50000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mnist", required=True, help="mnist.npz with x_train and y_train")
    options.add_argument("--n", type=int, default=1000)
    options.add_argument("--unseen", type=int, default=10000)
    options.add_argument("--device", default="cpu")
    options.add_argument("--out", type=Path, help="keep evidence and shootings in this file")
    given = options.parse_args()
    with np.load(given.mnist, allow_pickle=False) as stored:
        images, labels = stored["x_train"], stored["y_train"]
    model = ShapeAppearanceModel(**preset("digits"), device=given.device)
    classifier = EvidenceClassifier(model).fit(images[: given.n], labels[: given.n])
    some = slice(FIRST_UNSEEN, FIRST_UNSEEN + given.unseen)
    found = [of_class(model, images[some]) for model in classifier.models_]
    evidence = np.stack([each[0] for each in found], axis=2)  # start, image, class
    shootings = np.stack([each[1] for each in found], axis=2)
    if given.out:
        prior = classifier.class_log_prior_
        np.savez(
            given.out, evidence=evidence, shootings=shootings, labels=labels[some], prior=prior
        )
    show(evidence + classifier.class_log_prior_, shootings, labels[some])


def of_class(model: ShapeAppearanceModel, images: Array) -> tuple[Float64Array, Float64Array]:
    """Return evidence and number of shootings under one model, each (start, image)."""
    collection = model.checked_images(images)

    def from_all(generator: Generator, part: slice) -> list[Encoded]:
        some = generator.own(collection.read(part))
        return [encode(generator, some, start=start).to_host() for start in starts(generator, some)]

    parts = Predictor(model.generator_, model.machine).in_parts(from_all, len(collection))
    joined = [Encoded.joined(each) for each in zip(*parts, strict=True)]
    return (
        np.stack([each.log_evidence for each in joined]),
        np.stack([each.n_shootings for each in joined]),
    )


def starts(generator: Generator, images: Array) -> list[Float64Array | None]:
    """Return where to start, in the order of `STARTS`; None is up to the encoder."""
    guess, _ = best_guesses(generator, images)
    regressed = generator.guesses.regressed(images)
    return [None, guess, regressed, np.zeros_like(guess), 0.5 * regressed]


def show(joint: Float64Array, shootings: Float64Array, labels: Array) -> None:
    """Print errors of the best of one, two and all starts."""
    rows = np.arange(len(labels))
    for number in (1, 2, len(STARTS)):
        for chosen in combinations(range(len(STARTS)), number):
            best = joint[list(chosen)].max(axis=0)
            errors = np.count_nonzero(best.argmax(axis=1) != labels)
            names = ", ".join(STARTS[each] for each in chosen)
            print(
                f"{names:32s} {errors:5d} errors, {shootings[list(chosen)].sum(0).mean():6.1f} "
                f"shootings, evidence {best.mean():8.3f}, "
                f"own class {best[rows, labels].mean():8.3f}"
            )


if __name__ == "__main__":
    main()
