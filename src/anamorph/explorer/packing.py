"""A model as the page stores it: facts, and arrays that are rounded and compressed.

Mean in float32, modes in 14 bits. Of classes, the last is subtracted from the others: it is then
zero, and need not be stored. Probabilities stay the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.typing import Array, Float32Array, Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.explorer.encoding import packed_floats, packed_integers, restored, rounded
from anamorph.latents import draw_latents, mode_standard_deviations
from anamorph.latents.matrices import inverse
from anamorph.model.checks import ArgumentError
from anamorph.model.generator import Generator
from anamorph.model.settings import LatentLayout
from anamorph.plots.panels import mean_image, model_frame, model_palette
from anamorph.plots.rendering import background_class
from anamorph.plots.views import View

#: Likelihoods whose expected images the page can compute.
LIKELIHOODS = ("gaussian", "bernoulli", "categorical", "poisson")
_N_TRIED = 6  # random images that decide on colours and errors


#: Integers and the unit of each field, see `rounded`.
Rounded = tuple[NDArray[np.int16], Float32Array]


class ExplorerError(ArgumentError):
    """A model that no page can hold."""


@dataclass(frozen=True)
class PackedModel:
    """What a page stores of a model.

    Attributes
    ----------
    facts : dict
        What JSON holds.
    mean : bytes
    modes : list of dict of bytes
        For each mode that is kept, "appearance" and "shape" where it has them.
    stored : Generator
        The model as it is stored, with the modes that were dropped set to zero.
    """

    facts: dict[str, Any]
    mean: bytes
    modes: list[dict[str, bytes]]
    stored: Generator


def pack_model(model: ShapeAppearanceModel, most_bytes: float) -> PackedModel:
    """Return a model packed into at most so many bytes: modes are dropped from the end.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    most_bytes : float
        For mean and modes, compressed.
    """
    settings, layout = model.settings_, model.settings_.layout
    if settings.likelihood_name not in LIKELIHOODS:
        raise ExplorerError(
            f"the explorer draws models of {', '.join(LIKELIHOODS)} images, and this one is "
            f"{settings.likelihood_name}"
        )
    mean = _without_last_class(model, model.mean_[None])[0]
    packed_mean = packed_floats(mean)
    modes, stored_modes = _pack_modes(model)
    kept = _kept_latents(layout, modes, most_bytes - len(packed_mean))
    if not kept and layout.n_latents:
        needed = (len(packed_mean) + min(map(_size_of, modes))) * 4 / 3 / 1e6
        raise ExplorerError(
            f"not one mode fits into the page: it takes more than {needed:.3g} MB, so raise the "
            "budget"
        )
    stored = _stored_generator(model, mean, stored_modes, kept)
    facts = _model_facts(model, kept) | {"modes": _mode_facts(model, kept, stored_modes)}
    facts["storedError"] = _error_of(model, stored)
    return PackedModel(facts, packed_mean, [modes[k] for k in kept], stored)


def _pack_modes(
    model: ShapeAppearanceModel,
) -> tuple[list[dict[str, bytes]], list[dict[str, Rounded]]]:
    """Return every latent's packed columns, and their integers and units."""
    layout = model.settings_.layout
    bases = {
        "appearance": _without_last_class(model, model.appearance_basis_),
        "shape": model.shape_basis_,
    }
    packed, stored = [], []
    for k in range(layout.n_latents):
        columns = {}
        for name, basis in bases.items():
            first = layout.columns(name).start
            if 0 <= k - first < len(basis):
                columns[name] = rounded(basis[k - first])
        packed.append({name: packed_integers(pair[0]) for name, pair in columns.items()})
        stored.append(columns)
    return packed, stored


def _without_last_class(model: ShapeAppearanceModel, fields: Array) -> Array:
    """Return fields (n, C, *space) of appearance as they are stored: of classes, all but one."""
    if not model.settings_.likelihood.holds_classes:
        return fields
    return fields[:, :-1] - fields[:, -1:]


def _with_last_class(model: ShapeAppearanceModel, fields: Array) -> Array:
    if not model.settings_.likelihood.holds_classes:
        return fields
    return np.concatenate([fields, np.zeros_like(fields[:, :1])], axis=1)


def _size_of(mode: dict[str, bytes]) -> int:
    return sum(map(len, mode.values()))


def _kept_latents(
    layout: LatentLayout, modes: list[dict[str, bytes]], most_bytes: float
) -> list[int]:
    """Return the latents whose modes fit, dropped from the end of the longest block."""
    starts = np.cumsum([0, *layout.blocks])
    blocks = [list(range(first, last)) for first, last in pairwise(starts)]
    while sum(_size_of(modes[k]) for block in blocks for k in block) > most_bytes:
        longest = max(blocks, key=len)
        if not longest:
            break
        longest.pop()
    return [k for block in blocks for k in block]


def _stored_generator(
    model: ShapeAppearanceModel,
    mean: Array,
    modes: list[dict[str, Rounded]],
    kept: list[int],
) -> Generator:
    """Return the generator that the page has, with all latents; dropped modes do nothing."""
    generator = model.generator_
    layout, parameters = generator.settings.layout, generator.parameters
    shape, appearance = (np.zeros_like(parameters.basis(name)) for name in ("shape", "appearance"))
    for k in kept:
        for name, (integers, units) in modes[k].items():
            column = restored(integers, units)
            if name == "shape":
                shape[k - layout.first_shape] = column
            else:
                appearance[k] = _with_last_class(model, column[None])[0]
    parameters = replace(
        parameters,
        mean=np.ascontiguousarray(_with_last_class(model, mean[None])[0], np.float32),
        shape_basis=shape,
        appearance_basis=appearance,
    )
    return Generator(generator.settings, parameters)


def _error_of(model: ShapeAppearanceModel, stored: Generator) -> float:
    """Return the largest difference that storing makes to random images, as a share of range."""
    latents = draw_latents(model.latent_precision_, _N_TRIED, np.random.default_rng(0))
    with model.machine.threads():
        exact = model.generator_.expected_images(latents)
        kept = stored.expected_images(latents)
    spread = float(exact.max() - exact.min()) or 1.0
    return float(np.abs(exact - kept).max() / spread)


def _mode_facts(
    model: ShapeAppearanceModel, kept: list[int], modes: list[dict[str, Rounded]]
) -> list[dict[str, Any]]:
    deviations = mode_standard_deviations(model.latent_precision_)
    facts = []
    counts = {"appearance": 0, "shape": 0}
    for k in kept:
        fact: dict[str, Any] = {"latent": k + 1, "deviation": float(deviations[k])}
        for name in counts:
            fact[name] = counts[name] if name in modes[k] else None
            counts[name] += name in modes[k]
            units = modes[k][name][1].tolist() if name in modes[k] else []
            fact[f"{name}Units"] = units
        facts.append(fact)
    return facts


def _model_facts(model: ShapeAppearanceModel, kept: list[int]) -> dict[str, Any]:
    settings, image_format = model.settings_, model.image_format_
    likelihood, affine = settings.likelihood, model.origin_.affine
    frame = model_frame(model, None)
    return {
        "likelihood": settings.likelihood_name,
        "space": list(settings.space),
        "voxelSize": list(settings.voxel_size),
        "nChannels": settings.n_channels,
        "penalty": list(settings.shape_penalty),
        "nSteps": settings.n_steps,
        "nLatents": settings.layout.n_latents,
        "nImages": model.origin_.n_images,
        "hasPoses": settings.has_poses,
        "holdsClasses": likelihood.holds_classes,
        "classLabels": list(image_format.class_labels) if likelihood.holds_classes else None,
        "background": background_class(mean_image(model)) if likelihood.holds_classes else None,
        "affine": None if affine is None else np.asarray(affine).tolist(),
        "views": [_view_facts(view) for view in frame.views],
        "showsFirstRowOnTop": frame.shows_first_row_on_top,
        "start": _starting_voxel(model),
        "palette": _palette_facts(model),
        "drawFactor": _draw_factor(model, kept).tolist(),
    }


def _starting_voxel(model: ShapeAppearanceModel) -> list[int]:
    """Return where slices meet at first: amid what is not background, or in the centre."""
    space = model.settings_.space
    if not model.settings_.likelihood.holds_classes:
        return [n // 2 for n in space]
    mean = mean_image(model)
    foreground = 1 - mean[0, background_class(mean)].astype(np.float64)
    others = [tuple(j for j in range(len(space)) if j != axis) for axis in range(len(space))]
    profiles = [foreground.sum(axis=axes) for axes in others]
    return [int(np.average(np.arange(len(p)), weights=p).round()) for p in profiles]


def _view_facts(view: View) -> dict[str, Any]:
    return {
        "horizontal": view.horizontal,
        "vertical": view.vertical,
        "isFlipped": [bool(flipped) for flipped in view.is_flipped],
        "sides": list(view.sides),
    }


def _palette_facts(model: ShapeAppearanceModel) -> dict[str, Any]:
    """Return colours that suit the mean and random images."""
    latents = draw_latents(model.latent_precision_, _N_TRIED, np.random.default_rng(1))
    deciding = np.concatenate([mean_image(model), model.expected_images(latents)])
    palette = model_palette(model, deciding)
    return {
        "colours": palette.colours.tolist(),
        "lowest": palette.lowest.tolist(),
        "highest": palette.highest.tolist(),
    }


def _draw_factor(model: ShapeAppearanceModel, kept: list[int]) -> Float64Array:
    """Return F, lower triangular, with which F e has the covariance A^-1 of latents that are kept.

    Latents that are not kept are left out of the draw, which is what their distribution is then.
    """
    covariance = inverse(model.latent_precision_, "latent precision A")[np.ix_(kept, kept)]
    return np.asarray(np.linalg.cholesky(covariance), np.float64)
