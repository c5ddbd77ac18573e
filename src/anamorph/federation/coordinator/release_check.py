"""Membership inference before release: whether a model tells who was in its fit.

Whoever holds a finished model and somebody's image may ask whether that image was in the fit. The
two attacks here need nothing but the model: images of the fit have a higher log evidence, and are
reconstructed better, than others of the same kind. How well that tells members from others is
measured on images that were in the fit and images that were not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anamorph.arrays.typing import Float64Array
from anamorph.estimator import ShapeAppearanceModel
from anamorph.images.collection import Images

_FALSE_ALARMS = 0.01
_NOTICEABLE, _PLAIN = 0.6, 0.75
_N_BOOTSTRAPS = 1000


@dataclass(frozen=True)
class MembershipAttack:
    """How well one attack tells members of a fit from others.

    Attributes
    ----------
    name : {"log evidence", "reconstruction"}
        What it looks at.
    auc : float
        How often a member scores higher than another image: 0.5 is chance, 1 is always.
    low, high : float
        95 % confidence interval of it, by resampling members and others.
    found : float
        Share of members that it finds with at most 1 % false alarms.
    """

    name: str
    auc: float
    low: float
    high: float
    found: float


@dataclass(frozen=True)
class ReleaseCheck:
    """What attacks on a finished model find.

    Attributes
    ----------
    n_members, n_others : int
        How many images were tried.
    n_fitted : int
        How many images the model was fitted to.
    n_components : int
        K.
    attacks : tuple of MembershipAttack
        The best one first.
    """

    n_members: int
    n_others: int
    n_fitted: int
    n_components: int
    attacks: tuple[MembershipAttack, ...]

    @property
    def best(self) -> MembershipAttack:
        """The attack that tells members from others best."""
        return self.attacks[0]

    @property
    def grade(self) -> str:
        """Return "chance", "weak", "noticeable" or "plain": how well the best attack works."""
        best = self.best
        if best.low <= 0.5:
            return "chance"
        if best.auc < _NOTICEABLE:
            return "weak"
        return "noticeable" if best.auc < _PLAIN else "plain"

    @property
    def verdict(self) -> str:
        """The result in plain words, with its numbers."""
        best = self.best
        numbers = (
            f"AUC {best.auc:.2f} ({best.low:.2f} to {best.high:.2f}) by {best.name}, and "
            f"{best.found:.0%} of members found with at most 1 % false alarms"
        )
        ratio = f"{self.n_fitted / self.n_components:.3g} images per component"
        words = {
            "chance": f"These attacks do no better than chance: {numbers}. Better ones may exist.",
            "weak": f"The model hardly tells who was in the fit: {numbers}.",
            "noticeable": (
                f"The model tells noticeably who was in the fit: {numbers}. It has {ratio}: fit "
                "fewer components or more images if membership is confidential."
            ),
            "plain": (
                f"The model tells plainly who was in the fit: {numbers}. It has {ratio}: do not "
                "release it where membership is confidential."
            ),
        }[self.grade]
        if self.n_others < 1 / _FALSE_ALARMS:
            words += f" With {self.n_others} others, 1 % means none of them."
        return words


def release_check(
    model: ShapeAppearanceModel, members: Images, others: Images, *, random_state: int = 0
) -> ReleaseCheck:
    """Measure how well a model tells images that it was fitted to from others.

    Parameters
    ----------
    model : ShapeAppearanceModel
        A fitted model.
    members : images
        Some that it was fitted to, as for `ShapeAppearanceModel.transform`.
    others : images
        Of the same kind, from the same scanners and people like those, that it was not fitted to.
        Other differences would be taken for membership.
    random_state : int, default 0
        Seed of the resampling.

    Returns
    -------
    ReleaseCheck

    Raises
    ------
    ValueError
        If there are fewer than 10 members or 10 others.
    """
    scores = [_scores(model, images) for images in (members, others)]
    counts = [len(score["log evidence"]) for score in scores]
    if min(counts) < 10:
        raise ValueError(
            f"at least 10 members and 10 others are needed, got {counts[0]} and {counts[1]}"
        )
    generator = np.random.default_rng(random_state)
    attacks = [_attack(name, scores[0][name], scores[1][name], generator) for name in scores[0]]
    attacks.sort(key=lambda attack: -attack.auc)
    n_components = model.settings_.layout.n_latents
    n_fitted = model.origin_.n_images
    return ReleaseCheck(counts[0], counts[1], n_fitted, n_components, tuple(attacks))


def _scores(model: ShapeAppearanceModel, images: Images) -> dict[str, Float64Array]:
    """Return what attacks look at, (N,) each: higher for members, they hope."""
    checked = model.checked_images(images)
    encoded = model.encode(checked)
    return {
        "log evidence": encoded.log_evidence,
        "reconstruction": model.log_likelihood(checked, encoded.latents),
    }


def _attack(
    name: str, members: Float64Array, others: Float64Array, generator: np.random.Generator
) -> MembershipAttack:
    resampled = [
        _auc(generator.choice(members, len(members)), generator.choice(others, len(others)))
        for _ in range(_N_BOOTSTRAPS)
    ]
    low, high = np.quantile(resampled, [0.025, 0.975])
    auc, found = _auc(members, others), _found_at(members, others, _FALSE_ALARMS)
    return MembershipAttack(name, auc, float(low), float(high), found)


def _auc(members: Float64Array, others: Float64Array) -> float:
    """Return how often a member scores higher than another image; ties count half."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, members, side="left")
    not_above = np.searchsorted(ordered, members, side="right")
    return float((below + not_above).mean() / (2 * len(others)))


def _found_at(members: Float64Array, others: Float64Array, false_alarms: float) -> float:
    """Return the share of members above a threshold that at most some share of others is above."""
    n_allowed = int(false_alarms * len(others))
    threshold = np.sort(others)[len(others) - 1 - n_allowed]
    return float(np.mean(members > threshold))
