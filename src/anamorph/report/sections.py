"""The sections of a report, one function each: pictures of a model with captions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import matplotlib
import numpy as np
from numpy.typing import ArrayLike

from anamorph import plots
from anamorph.arrays.typing import Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.fitting.run import duration
from anamorph.geometry import jacobian_determinant
from anamorph.latents import mode_standard_deviations
from anamorph.model.posing import PosedGenerator
from anamorph.plots.panels import image_titles, matched_images, observed_images, signed
from anamorph.report.figures import (
    Voxel,
    mean_figure,
    shares_figure,
    times_figure,
    warps_figure,
)
from anamorph.report.markup import (
    Section,
    format_count,
    format_number,
    format_percent,
    make_paragraph,
    make_picture,
    make_table,
    short_names,
)
from anamorph.report.measures import Examined, ModeShares
from anamorph.report.settings import HEADER, settings_rows

_MOST_MODES = 6
_MOST_SHOWN = {2: 6, 3: 4}  # images in a row: of volumes, three slices each
_MOST_WARPS = 4
_MOST_POINTS = 2000  # in a drawing as SVG


def mean_section(model: ShapeAppearanceModel, voxel: Voxel) -> Section:
    """Show the mean."""
    noise = ""
    if model.settings_.likelihood.has_noise:
        deviations = ", ".join(f"{np.sqrt(v):.3g}" for v in model.noise_variance_)
        noise = f" The noise that modes do not explain has standard deviation {deviations}."
    caption = f"The mean: the image whose latents are all zero.{noise}{_explain_orientation(model)}"
    return Section(
        "mean", "Mean", make_picture(mean_figure(model, voxel), caption, "The mean image")
    )


def modes_section(model: ShapeAppearanceModel, shares: ModeShares, voxel: Voxel) -> Section:
    """Show the images along each mode, and its share of the variance of images."""
    layout = model.settings_.layout
    deviations, _ = _mode_panels(model)
    intro = make_paragraph(
        "A mode is what one latent does when all others are zero. Each row goes from "
        f"{signed(deviations[0])} to {signed(deviations[-1])} standard deviations (s.d.) of its "
        "latent; beyond ±3 lies what the model has hardly seen, which shows where it would break. "
        "Percentages are the share of the variance of images, and modes with the largest share "
        "come first, here and below."
    )
    if model.latents == "separate":
        groups = [
            ("Modes of appearance", range(layout.n_appearance)),
            ("Modes of shape", range(layout.first_shape, layout.n_latents)),
        ]
    else:
        groups = [("Modes", range(layout.n_latents))]
    pictures = [_modes_picture(model, title, modes, shares, voxel) for title, modes in groups]
    both = layout.n_appearance > 0 and layout.n_shape > 0
    chart = make_picture(
        shares_figure(shares, both and model.latents == "joint"),
        _shares_caption(model, shares),
        "Bar chart of the share of variance of each mode",
        is_drawing=True,
    )
    return Section("modes", "Modes", "\n".join([intro, *pictures, chart]))


def _modes_picture(
    model: ShapeAppearanceModel, title: str, modes: range, shares: ModeShares, voxel: Voxel
) -> str:
    shown = shares.ordered(modes)[:_MOST_MODES]
    deviations, length = _mode_panels(model)
    names = [f"mode {mode + 1}\n{format_percent(shares.together[mode])}" for mode in shown]
    with _letter_size(model):
        figure = plots.plot_modes(model, shown, deviations, names=names, voxel=voxel, length=length)
    how_many = f"the {len(shown)} of {len(modes)} that carry most"
    if len(shown) == len(modes):
        how_many = f"all {len(modes)}"
    caption = f"{title}: {how_many}, each with its share of variance."
    last = deviations[-1]
    alternative = f"{title} from minus {last} to plus {last} standard deviations"
    return make_picture(figure, caption, alternative)


def _mode_panels(model: ShapeAppearanceModel) -> tuple[tuple[int, ...], float]:
    """Return the deviations that rows of modes show, and the size of their images in inches."""
    if len(model.settings_.space) == 2:
        return (-5, -3, -1, 1, 3, 5), 1.5
    return (-3, -1, 1, 3), 2.4  # three slices each: fewer of them, and larger


def _shares_caption(model: ShapeAppearanceModel, shares: ModeShares) -> str:
    enough = int(np.searchsorted(np.cumsum(np.sort(shares.together)[::-1]), 0.9)) + 1
    text = (
        "Share of the variance of images that each mode carries, measured at ±1 s.d. in the units "
        f"of the images; {format_count(enough, 'mode carries', 'modes carry')} 90 % of it together."
    )
    if model.latents == "joint":
        text += (
            " Shape alone and appearance alone are what the mode would carry if it had only that; "
            "they do not add up where one undoes some of the other."
        )
    return text


def samples_section(model: ShapeAppearanceModel, voxel: Voxel) -> Section:
    """Show random images in pairs."""
    n_pairs = 8 if len(model.settings_.space) == 2 else 5
    with _letter_size(model):
        figure = plots.plot_samples(model, n_pairs, 0, voxel=voxel)
    caption = (
        "Images drawn at random from the model; no such image was ever observed. Below each is the "
        "one with the opposite latents: a good model looks as plausible in both directions."
    )
    body = make_picture(figure, caption, "Random images of the model, in opposite pairs")
    return Section("samples", "Random samples", body)


def fits_section(model: ShapeAppearanceModel, examined: Examined, voxel: Voxel) -> Section:
    """Show the images that the model fits best and worst."""
    order, most = examined.order, _MOST_SHOWN[len(model.settings_.space)]
    if len(order) <= 2 * most:
        half = -(-len(order) // 2)
        groups = [("The better half", order[:half]), ("The other half", order[half:])]
    else:
        groups = [("Best fits", order[:most]), ("Worst fits", order[-most:])]
    looked_at = f"all {examined.n_images:,}"
    if len(order) < examined.n_images:
        looked_at = f"{len(order)} of {examined.n_images:,}"
    best, middle, worst = (format_number(f(examined.fit)) for f in (np.max, np.median, np.min))
    intro = make_paragraph(
        f"Images are ordered by log-likelihood per voxel, from the best; {looked_at} were looked "
        f"at (median {middle}, from {best} to {worst}). Below each are its reconstruction "
        "from the latents, and the same by shape only (the mean, warped) and by appearance only "
        f"(not warped).{_explain_comparison(model)}"
    )
    if any(np.isnan(examined.images.read(slice(n, n + 1))).any() for n in order):
        intro += make_paragraph("Pink voxels are missing: the model fills them in.")
    pictures = [
        _fits_picture(model, examined, title, chosen, voxel) for title, chosen in groups if chosen
    ]
    return Section("fits", "Fits", "\n".join([intro, *pictures]))


def _fits_picture(
    model: ShapeAppearanceModel, examined: Examined, title: str, chosen: list[int], voxel: Voxel
) -> str:
    names = _short_titles(model, examined.names)
    with _letter_size(model):
        figure = plots.plot_fits(
            *(model, examined.images, examined.latents, chosen),
            poses=examined.poses,
            names=names,
            voxel=voxel,
        )
    values = ", ".join(f"{examined.names[n]} ({format_number(examined.fit[n])})" for n in chosen)
    caption = f"{title}: {values}; in brackets the log-likelihood per voxel."
    return make_picture(figure, caption, f"{title}: data and reconstructions")


def warps_section(
    model: ShapeAppearanceModel,
    examined: Examined | None,
    latents: Array | None,
    names: Sequence[str] | None,
    shares: ModeShares,
    voxel: Voxel,
) -> Section:
    """Show how images deform the mean, or how modes do if there are no latents."""
    observed = None
    if examined is not None:
        chosen = examined.pick_evenly(_MOST_WARPS)
        codes, which = examined.latents[chosen], "Images from the best to the worst fitted"
        titles = [_short_titles(model, examined.names)[n] for n in chosen]
        observed = _template_images(model, examined, chosen)
        if examined.poses is not None:
            which += ", as their poses bring them onto the template"
    elif latents is not None:
        rows = np.linspace(0, len(latents) - 1, min(_MOST_WARPS, len(latents))).astype(int)
        known = None if names is None else _short_titles(model, names)
        titles = image_titles(known, rows.tolist(), len(latents))
        codes, which = latents[rows], "A few images"
    else:
        first = model.settings_.layout.first_shape
        modes = shares.ordered(range(first, first + model.settings_.layout.n_shape))[:_MOST_WARPS]
        deviations = mode_standard_deviations(model.latent_precision_)
        codes = 3 * np.diag(deviations)[list(modes)]
        titles, which = [f"mode {m + 1}, +3 s.d." for m in modes], "The first modes"
    folded = jacobian_determinant(model.displacement(codes)).min() <= 0
    caption = (
        f"{which}, with the regular grid of the mean as their warps carry it, and the logarithm of "
        "how much larger (red) or smaller (blue) each place is than in the mean; ±0.7 is twice or "
        "half the size."
    )
    if observed is not None and np.isnan(observed).any():
        caption += " Pink areas of the data are missing, and pink lines are the grid."
    if folded:
        caption += " Where a place is pink in the last row, the warp folds."
    with _letter_size(model):
        figure = warps_figure(model, codes, titles, observed, voxel)
    return Section("warps", "Warps", make_picture(figure, caption, "Deformation grids and maps"))


def poses_section(model: ShapeAppearanceModel, poses: Array, names: Sequence[str]) -> Section:
    """List how far images lie from the template, where they have poses."""
    unit = " mm" if model.origin_.affine is not None else " voxels"
    kinds = (
        ("shift", f"Shift,{unit}", 1.0),
        ("turn", "Turn, degrees", float(np.rad2deg(1))),
        ("zoom", "Change of size, %", 100.0),
        ("shear", "Shear, %", 100.0),
    )
    rows = []
    for kind, title, scale in kinds:
        columns = [n for n, name in enumerate(model.pose_names_) if name.startswith(kind)]
        if columns:
            sizes = scale * np.linalg.norm(poses[:, columns], axis=1)
            worst = int(sizes.argmax())
            rows.append(
                (title, format_number(np.median(sizes)), format_number(sizes[worst]), names[worst])
            )
    intro = (
        "Each image has a pose, which brings it onto the template before its warp is found: "
        f"{len(poses):,} poses ({model.settings_.align}), measured from the template."
    )
    table = make_table(("Pose", "Median", "Largest", "Of image"), rows)
    return Section("poses", "Poses", make_paragraph(intro) + table)


def _template_images(model: ShapeAppearanceModel, examined: Examined, chosen: list[int]) -> Array:
    """Return some images as poses bring them onto the template, with its intensities."""
    images = observed_images(model, examined.images.subset(chosen))
    if examined.poses is not None:
        images = PosedGenerator.of(model.generator_, examined.poses[chosen]).unposed(images)
    return matched_images(model, images, model.expected_images(examined.latents[chosen]))


def latents_section(
    model: ShapeAppearanceModel,
    latents: Array,
    shares: ModeShares,
    labels: ArrayLike | None,
    label_name: str | None,
) -> Section:
    """Show the distribution of latents in standard deviations, by label."""
    layout = model.settings_.layout
    latents = latents / mode_standard_deviations(model.latent_precision_)
    dims, second = shares.order[:4], 1
    if model.latents == "separate":
        half = layout.first_shape
        appearance = shares.ordered(range(half))[:2]
        dims = [*appearance, *shares.ordered(range(half, layout.n_latents))[:2]]
        second = len(appearance)
    coloured = "" if labels is None else f", coloured by {label_name or 'label'}"
    is_drawing = len(latents) <= _MOST_POINTS
    pictures = []
    if len(dims) > 1:
        pair = (dims[0], dims[second])
        axes = plots.plot_latents(latents, labels, pair, label_name=label_name, unit="s.d.")
        pictures.append(
            make_picture(
                axes.figure,
                f"Two latents of {format_count(len(latents), 'image')}{coloured}, in standard "
                "deviations of the model.",
                "Scatter plot of two latents",
                is_drawing=is_drawing,
            )
        )
    caption = f"The same for {_list_latents(dims)}, two by two, with histograms along the diagonal."
    pairs = plots.plot_latent_pairs(latents, labels, dims, unit="s.d.")
    pictures.append(
        make_picture(pairs, caption, "Histograms and pairs of latents", is_drawing=is_drawing)
    )
    return Section("latents", "Latents", "\n".join(pictures))


def fit_section(model: ShapeAppearanceModel) -> Section:
    """Show the objective of the fit, and how long it took."""
    objective = plots.plot_objective(model).figure
    body = [
        make_picture(
            objective,
            _objective_caption(model) + _validation_caption(model),
            "Line plot of the objective by iteration",
            is_drawing=True,
        )
    ]
    seconds = model.origin_.seconds
    if seconds:
        middle = float(np.median(seconds))
        caption = (
            f"Time of each iteration. In all {duration(sum(seconds))}; the median iteration took "
            f"{duration(middle)}, or {duration(middle / model.origin_.n_images)} per image. The "
            "first may include compilation."
        )
        if len(model.origin_.level_begins) > 1:
            caption += " Those on coarser grids are shorter."
        alternative = "Bar chart of the seconds of each iteration"
        body.append(make_picture(times_figure(seconds), caption, alternative, is_drawing=True))
    return Section("fit", "How the fit went", "\n".join(body))


def _objective_caption(model: ShapeAppearanceModel) -> str:
    text = "Objective (approximate log evidence) after each iteration; it should rise."
    begins = model.origin_.level_begins
    if len(begins) > 1:
        text += (
            f" The fit went through {len(begins)} grids, from coarse to fine, with a dashed line "
            "between them: objectives of different grids cannot be compared."
        )
    objective = model.objective_[begins[-1] :]
    if len(objective) < 2:
        return text
    last, total = objective[-1] - objective[-2], max(objective) - min(objective)
    share = last / total if total else 0.0
    text += (
        f" The last iteration raised it by {format_number(last)}, {100 * share:.2g} % of the "
        f"whole rise{' on the last grid' if len(begins) > 1 else ''}"
    )
    return text + (": more iterations may still help." if share > 0.01 else ": it has settled.")


def _validation_caption(model: ShapeAppearanceModel) -> str:
    best, evidence = model.best_iteration_, model.validation_
    if best is None:
        return ""
    lost = evidence[best - 1] - evidence[-1]
    verdict = (
        "it was still the best at the end."
        if best == len(evidence)
        else f"since then it lost {format_number(lost)} nats: fewer iterations, fewer latents or "
        "firmer penalties may predict new images better."
    )
    return (
        f" Squares are the mean log evidence of images that were held out, best after iteration "
        f"{best} ({format_number(evidence[best - 1])}); {verdict}"
    )


def settings_section(model: ShapeAppearanceModel) -> Section:
    """List the settings."""
    return Section("settings", "Settings", make_table(HEADER, settings_rows(model)))


def _explain_orientation(model: ShapeAppearanceModel) -> str:
    if len(model.settings_.space) == 2:
        return ""
    if model.origin_.affine is None:
        return " Of volumes three slices are shown, along the axes of the arrays."
    return (
        " Of volumes coronal, sagittal and axial slices are shown, superior and anterior up; the "
        "left of the patient is on the left."
    )


def _explain_comparison(model: ShapeAppearanceModel) -> str:
    """Return what reconstructions share with images that the model does not explain by latents."""
    settings = model.settings_
    if not (settings.has_poses or settings.matches_intensities):
        return ""
    given = ["have the poses of the images"] if settings.has_poses else []
    if settings.matches_intensities:
        given.append("and images " * bool(given) + "are shown without the gain of each image")
    return f" Reconstructions {' '.join(given)}."


def _letter_size(model: ShapeAppearanceModel) -> AbstractContextManager[None]:
    """Make letters larger for volumes, whose pictures are scaled down to fit the page."""
    return matplotlib.rc_context({} if len(model.settings_.space) == 2 else {"font.size": 13})


def _short_titles(model: ShapeAppearanceModel, names: Sequence[str]) -> list[str]:
    """Return names that are short enough to be titles of pictures."""
    return short_names(names, 10 if len(model.settings_.space) == 2 else 16)


def _list_latents(dims: Sequence[int]) -> str:
    numbers = [str(dim + 1) for dim in dims]
    return "latents " + ", ".join(numbers) if len(dims) > 1 else f"latent {numbers[0]}"
