"""What more work on doubtful classes changes: errors of digits that are classified by evidence.

    python -m benchmarks.doubt --mnist FILE

Models of the ten digits are learnt from the first n training images of MNIST, and digits from the
end of the training images, which no model has seen, are classified. Test digits are not looked
at, so that what is chosen here can be tried on them. Where several classes are nearly as probable,
their evidence is found again: from a second start, by the average curvature of the posterior, and
by importance sampling. The numbers of images are for two minutes on one core; errors tell ways
apart only with thousands of images (--n 5000 --unseen 10000 --device cuda).
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import logsumexp

from anamorph import EvidenceClassifier, ShapeAppearanceModel, preset
from anamorph.arrays.devices import to_host
from anamorph.arrays.typing import Array, Float64Array
from anamorph.latents import log_determinant
from anamorph.model.curvature import exact_derivatives, fit_gaussian
from anamorph.model.encoding import encode
from anamorph.model.generator import Generator
from benchmarks.calibration import importance

FIRST_UNSEEN = 50000
DOUBT = 15.0
N_DRAWS = 50
WAYS = ("one start", "two starts", "average curvature", "importance sampling")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mnist", required=True, help="mnist.npz with x_train and y_train")
    options.add_argument("--n", type=int, default=300)
    options.add_argument("--unseen", type=int, default=200)
    options.add_argument("--device", default="cpu")
    given = options.parse_args()
    with np.load(given.mnist, allow_pickle=False) as stored:
        images, labels = stored["x_train"], stored["y_train"]
    model = ShapeAppearanceModel(**preset("digits"), device=given.device)
    classifier = EvidenceClassifier(model).fit(images[: given.n], labels[: given.n])
    some = slice(FIRST_UNSEEN, FIRST_UNSEEN + given.unseen)
    show(classifier, images[some], labels[some])


def show(classifier: EvidenceClassifier, images: Array, labels: Array) -> None:
    """Print errors and evidence for each way to find evidence."""
    encoded = [model.encode(images) for model in classifier.models_]
    joint = np.stack([each.log_evidence for each in encoded], axis=1) + classifier.class_log_prior_
    is_near = joint > joint.max(axis=1, keepdims=True) - DOUBT
    is_near &= np.count_nonzero(is_near, axis=1, keepdims=True) > 1
    print(
        f"doubtful: {is_near.any(axis=1).mean():.3f} of images, {is_near.mean():.4f} of all pairs"
    )
    ways = np.repeat(joint[None], len(WAYS), axis=0)
    for k, model in enumerate(classifier.models_):
        which = np.flatnonzero(is_near[:, k])
        if not len(which):
            continue
        collection = model.checked_images(images[which])

        def refine(generator: Generator, part: slice, collection: Array = collection) -> Array:
            return refined(generator, generator.own(collection.read(part)))

        parts = model.predictor_.in_parts(refine, len(which))
        found = np.concatenate(parts, axis=1) + classifier.class_log_prior_[k]
        ways[1:, which, k] = found
    rows = np.arange(len(labels))
    for name, evidence in zip(WAYS, ways, strict=True):
        errors = np.count_nonzero(evidence.argmax(axis=1) != labels)
        own = evidence[rows, labels][is_near.any(axis=1)].mean()
        print(f"{name:20s} {errors:4d} errors; own class of doubtful images {own:.3f}", flush=True)


def refined(generator: Generator, images: Array) -> Float64Array:
    """Return evidence from a second start, by average curvature and by importance sampling."""
    both = [
        encode(generator, images, second_start=second, with_covariance=True)
        for second in (False, True)
    ]
    is_second = both[1].log_evidence > both[0].log_evidence
    latents = np.where(is_second[:, None], both[1].latents, both[0].latents)
    covariance = np.where(is_second[:, None, None], both[1].covariance, both[0].covariance)
    mean, average = fit_gaussian(generator, images, latents, covariance)
    value, _ = exact_derivatives(generator, images, latents)
    half = 0.5 * (log_determinant(generator.prior_precision) + np.linalg.slogdet(average)[1])
    weights = importance(generator, images, (mean, average), np.random.default_rng(0), N_DRAWS)[0]
    sampled = logsumexp(to_host(weights), axis=0) - np.log(N_DRAWS)
    laplace = np.maximum(both[0].log_evidence, both[1].log_evidence)
    return np.stack([to_host(laplace), to_host(value + half), sampled])


if __name__ == "__main__":
    main()
