"""The top of the report: the model in a paragraph and a few numbers."""

from __future__ import annotations

from anamorph.estimator import ShapeAppearanceModel
from anamorph.fitting.progress import duration
from anamorph.report.markup import facts, paragraph
from anamorph.report.variance import ModeShares
from anamorph.report.wording import LATENTS, count, grid_unit, percent, times


def summary(model: ShapeAppearanceModel, shares: ModeShares) -> str:
    """Return what the model is, in words."""
    settings, origin = model.settings_, model.origin_
    what = "images" if len(settings.space) == 2 else "volumes"
    first = int(shares.together.argmax())
    sentences = [
        f"This model was learnt from {origin.n_images:,} {what} of {times(settings.space)} "
        f"{grid_unit(settings.space)}, "
        f"without any annotation ({settings.likelihood_name} likelihood, for "
        f"{settings.likelihood.description}).",
        f"It describes every image by a mean and {count(settings.layout.n_latents, 'latent')}, "
        f"numbers of which {LATENTS[model.latents]}.",
        f"Mode {first + 1} carries the largest share of the variance that the modes explain, "
        f"{percent(shares.together[first])}.",
    ]
    return paragraph(" ".join(sentences)) + facts(_facts(model))


def _facts(model: ShapeAppearanceModel) -> list[tuple[str, str]]:
    settings, origin = model.settings_, model.origin_
    numbers = [
        ("Images", f"{origin.n_images:,}"),
        ("Grid", times(settings.space)),
        ("Latents", f"{settings.layout.n_latents}"),
        ("Iterations", f"{model.n_iter_}"),
    ]
    if origin.seconds:
        numbers.append(("Time to fit", duration(sum(origin.seconds))))
    return numbers
