"""How well a model reconstructs images that it was not fitted to: an error, or Dice of classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anamorph.arrays.typing import Array, Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.plots.panels import Images, matched_images, mean_image
from anamorph.plots.rendering import background_class
from anamorph.report.markup import Section, format_number, make_facts, make_paragraph


@dataclass(frozen=True)
class HeldOut:
    """A measure of images that the model was not fitted to, by image.

    Attributes
    ----------
    measure : str
        What is measured, e.g. "Root mean squared error".
    is_error : bool
        Whether less is better.
    of_model : array of shape (N,)
        Of the reconstructions by the model.
    of_mean : array of shape (N,)
        Of the mean image, for comparison.
    """

    measure: str
    is_error: bool
    of_model: Float64Array
    of_mean: Float64Array


def measure_held_out(model: ShapeAppearanceModel, images: Images) -> HeldOut:
    """Encode and reconstruct images, and measure how well that succeeds.

    Parameters
    ----------
    model : ShapeAppearanceModel
    images : array, list of arrays or paths, or collection
        N images that the model was not fitted to.

    Returns
    -------
    HeldOut
        Dice of the classes but the background for label maps, else root mean squared errors; where
        images have poses and gains of their own, with these, also of the mean.
    """
    collection = model.checked_images(images)
    encoded = model.encode(collection)
    has_classes = model.settings_.likelihood.holds_classes
    background = background_class(mean_image(model)) if has_classes else None
    of_model: list[float] = []
    of_mean: list[float] = []
    for n in range(len(collection)):
        images = collection.read(slice(n, n + 1))
        latents = encoded.latents[n : n + 1]
        poses = None if encoded.poses is None else encoded.poses[n : n + 1]
        for found, codes in ((of_model, latents), (of_mean, np.zeros_like(latents))):
            guess = model.expected_images(codes, poses=poses)
            observed = matched_images(model, images, guess)
            if background is None:
                found.append(float(np.sqrt(np.nanmean(np.square(observed - guess)))))
            else:
                found.append(_dice(observed[0], guess[0], background))
    measure = "Dice of the classes" if has_classes else "Root mean squared error"
    return HeldOut(measure, not has_classes, np.array(of_model), np.array(of_mean))


def _dice(observed: Array, guess: Array, background: int) -> float:
    """Return the mean Dice over classes but the background, where voxels are observed."""
    is_known = np.isfinite(observed).all(axis=0)
    truth, found = (classes.argmax(axis=0)[is_known] for classes in (observed, guess))
    scores = []
    for label in range(len(observed)):
        size = (truth == label).sum() + (found == label).sum()
        if label != background and size:
            scores.append(2 * ((truth == label) & (found == label)).sum() / size)
    return float(np.mean(scores)) if scores else 1.0


def held_out_section(held_out: HeldOut) -> Section:
    """Show the measure of images that the model was not fitted to."""
    n_images = len(held_out.of_model)
    better = "less" if held_out.is_error else "more"
    text = (
        f"{held_out.measure} of {n_images:,} images that the model was not fitted to, "
        f"reconstructed from their latents ({better} is better). The mean image alone shows what "
        "the modes add."
    )
    facts = [
        ("Model, mean", format_number(float(held_out.of_model.mean()))),
        ("Model, worst", format_number(_worst(held_out))),
        ("Mean image alone", format_number(float(held_out.of_mean.mean()))),
    ]
    return Section("held_out", "Held-out images", make_paragraph(text) + make_facts(facts))


def _worst(held_out: HeldOut) -> float:
    values = held_out.of_model
    return float(values.max() if held_out.is_error else values.min())
