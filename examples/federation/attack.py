"""What the sums of one site reveal: attacks on handwritten digits, measured.

python -m examples.federation.attack FOLDER

A coordinator that does not mask sums sees those of each site. It tries to draw the images of a
site from them, for sites of 50 images down to one; it compares two totals that differ by one
image, and two totals before and after a site left. Numbers go to the terminal, a figure to FOLDER.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from anamorph import ShapeAppearanceModel
from anamorph.datasets import digits
from anamorph.fitting.cohort import Cohort
from anamorph.fitting.sums import Sums
from anamorph.images.arrays import ArrayImages

Array = NDArray[np.floating]

N_PUBLIC = 300
SIZES = (1, 2, 3, 5, 10, 20, 50)
REPEATS = 12
SHOWN = (1, 2, 5, 10, 50)


@dataclass(frozen=True)
class Site:
    """What a coordinator sees of one site in an iteration, and what it does not see."""

    n_images: int
    latents: Sums
    derivatives: Sums
    moments: Sums
    images: Array


def main(folder: Path) -> None:
    """Run all attacks."""
    images = digits()[0].astype(np.float32) / 255
    model = ShapeAppearanceModel(16, likelihood="bernoulli", n_iter=10).fit(images[:N_PUBLIC])
    private = images[N_PUBLIC:]
    rows = reconstruction(model, private)
    differencing(model, private)
    leaving(model, private)
    folder.mkdir(parents=True, exist_ok=True)
    draw(rows, model, private, folder / "attack.png")


# ---- reconstruction from the sums of one site


def site_of(model: ShapeAppearanceModel, images: Array) -> Site:
    """Return what a site of some images answers in an iteration."""
    cohort = cohort_of(model, images)
    cohort.propose_latents()
    latents = cohort.update_latents()
    derivatives = cohort.mean_derivatives()
    return Site(len(images), latents, derivatives, cohort.moments(), images)


def cohort_of(model: ShapeAppearanceModel, images: Array) -> Cohort:
    """Return the images of a site with their latents under a model."""
    cohort = Cohort(ArrayImages(images, "bernoulli"), model.settings_, range(len(images)))
    cohort.publish(model.generator_.parameters)
    cohort.restore(model.transform(images))
    return cohort


def drawn_from_derivatives(model: ShapeAppearanceModel, site: Site) -> Array:
    """Return the image that explains the mean derivatives of a site best, if it had but one.

    With one image f, warped by phi, the gradient is what phi pushes of s - f, and the Hessian what
    it pushes of s (1 - s), for s = sigmoid(a) and the appearance a of its latents, of which
    update_latents gave the mean.
    """
    latents = site.latents["latent_sum"][None] / site.n_images
    generator = model.generator_
    appearance = generator.appearance(latents)
    expected = 1 / (1 + np.exp(-appearance[0]))
    pushed = site.derivatives["hessian"][0] / np.maximum(expected * (1 - expected), 1e-3)
    image = expected - site.derivatives["gradient"][0] / np.maximum(pushed, 0.3)
    warped = generator.warp(image[None].astype(np.float32), generator.displacement(latents))
    return np.asarray(warped[0, 0])


def drawn_from_moments(site: Site) -> Array:
    """Return the mean image of a site."""
    return np.asarray(site.moments["total"][0] / site.n_images)


def reconstruction(model: ShapeAppearanceModel, private: Array) -> dict[str, Array]:
    """Draw images of sites of all sizes; return how like their members and others they are."""
    print("Correlation of what is drawn from the sums of one site with its images and with others,")
    print("less the mean of the public images (mean of 12 sites)")
    print(f"{'images':>7} {'derivatives':>12} {'others':>8} {'moments':>8}")
    generator = np.random.default_rng(0)
    found: dict[str, list[float]] = {name: [] for name in ("derivatives", "others", "moments")}
    for size in SIZES:
        values = []
        for _ in range(REPEATS):
            order = generator.permutation(len(private))
            members, others = private[order[:size]], private[order[size : size + 25]]
            site = site_of(model, members)
            drawn = drawn_from_derivatives(model, site)
            values.append(
                [
                    likeness(drawn, members),
                    likeness(drawn, others),
                    likeness(drawn_from_moments(site), members),
                ]
            )
        means = np.mean(values, axis=0)
        print(f"{size:7d} {means[0]:12.2f} {means[1]:8.2f} {means[2]:8.2f}")
        for name, value in zip(found, means, strict=True):
            found[name].append(float(value))
    return {name: np.array(values) for name, values in found.items()}


@cache
def public_mean() -> Array:
    """Return the mean of the images that everybody knows, (28, 28)."""
    return np.asarray(digits()[0][:N_PUBLIC].mean(axis=0) / 255)


def likeness(drawn: Array, images: Array) -> float:
    """Return the mean correlation of a drawing with images, both less the mean of public ones."""
    mean = public_mean().reshape(-1)
    specific = drawn.reshape(-1) - mean
    return float(
        np.mean([np.corrcoef(specific, image.reshape(-1) - mean)[0, 1] for image in images])
    )


# ---- differences of totals


def differencing(model: ShapeAppearanceModel, private: Array) -> None:
    """Compare two totals that differ by one image."""
    print("\nDifference of two totals, of 50 images and of 49 of them")
    whole, less = site_of(model, private[:50]), site_of(model, private[1:50])
    image = whole.moments["total"] - less.moments["total"]
    print(f"  moments: the image, with an error of {np.abs(image[0] - private[0]).max():.1e}")
    latent = whole.latents["latent_sum"] - less.latents["latent_sum"]
    own = site_of(model, private[:1])
    error = np.abs(latent - own.latents["latent_sum"]).max()
    print(f"  latents: those of the image, with an error of {error:.1e}")
    difference = Site(
        1,
        Sums(1, {"latent_sum": latent}),
        Sums(1, _differences(whole.derivatives, less.derivatives)),
        own.moments,
        private[:1],
    )
    drawn = drawn_from_derivatives(model, difference)
    print(f"  derivatives: an image of correlation {likeness(drawn, private[:1]):.2f}")


def leaving(model: ShapeAppearanceModel, private: Array) -> None:
    """Compare totals before and after one of four sites of 25 images left."""
    cohorts = [cohort_of(model, private[first : first + 25]) for first in range(0, 100, 25)]
    for cohort in cohorts:
        cohort.propose_latents()
        cohort.update_latents()
    before = [cohort.mean_derivatives() for cohort in cohorts]
    for cohort in cohorts[:3]:  # those who stay take another step, as after a site has left
        cohort.propose_latents()
        cohort.update_latents()
    after = [cohort.mean_derivatives() for cohort in cohorts[:3]]
    total_before, total_after = _total(before), _total(after)
    difference = total_before["gradient"] - total_after["gradient"]
    own = before[3]["gradient"]
    correlation = np.corrcoef(difference.reshape(-1), own.reshape(-1))[0, 1]
    print("\nDifference of the totals of four sites of 25 images, and of three after one left and")
    print(f"the others took a step: correlation {correlation:.2f} with the gradient of that site")


def _differences(one: Sums, other: Sums) -> dict[str, NDArray[np.float64]]:
    return {name: one[name] - other[name] for name in one.fields}


def _total(answers: Sequence[Sums]) -> Sums:
    total = answers[0]
    for answer in answers[1:]:
        total = total + answer
    return total


# ---- the figure


def draw(rows: dict[str, Array], model: ShapeAppearanceModel, private: Array, path: Path) -> None:
    """Draw how likeness falls with the number of images, and what is drawn."""
    figure = plt.figure(figsize=(9, 3.2), layout="constrained")
    left, right = np.asarray(figure.subfigures(1, 2)).tolist()
    axes = left.subplots()
    styles = {
        "moments": ("C1", "its images, from moments"),
        "derivatives": ("C0", "its images, from mean derivatives"),
        "others": ("0.5", "other images, from mean derivatives"),
    }
    for name, (colour, label) in styles.items():
        axes.plot(SIZES, rows[name], "o-", color=colour, label=label, markersize=4)
    axes.axvline(10, color="0.8", zorder=0)
    axes.text(9.6, -0.12, "least by default", color="0.5", fontsize=8, ha="right")
    axes.set(xscale="log", xlabel="images of the site", ylabel="correlation", ylim=(-0.15, 1.02))
    axes.set_xticks(SIZES, [str(size) for size in SIZES])
    axes.minorticks_off()
    axes.legend(fontsize=8, edgecolor="none", framealpha=1, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
    panels = right.subplots(2, len(SHOWN))
    for column, size in zip(panels.T, SHOWN, strict=True):
        site = site_of(model, private[:size])
        for panel, image in zip(
            column, (drawn_from_moments(site), drawn_from_derivatives(model, site)), strict=True
        ):
            panel.imshow(image, cmap="gray_r", vmin=0, vmax=1)
            panel.set(xticks=[], yticks=[])
        column[0].set_title(f"{size} image{'s' * (size > 1)}", fontsize=8)
    panels[0, 0].set_ylabel("moments", fontsize=8)
    panels[1, 0].set_ylabel("derivatives", fontsize=8)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
