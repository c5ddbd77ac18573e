"""The policy of a site: rules in its own TOML file, enforced by its own agent."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from anamorph.federation.protocol.errors import PolicyError, RosterError, TooFewImagesError
from anamorph.federation.protocol.roster import check_enough_sites
from anamorph.federation.site.setting_ranges import (
    DEFAULT_RANGES,
    check_layout,
    check_ranges,
    checked_ranges,
)
from anamorph.fitting.sums import ANALYSES, FIELDS, POSING
from anamorph.geometry.pose import NONE
from anamorph.model.settings import Settings

# Honest fits stay below: 21 questions in the worst iteration, and iterations that are done again.
_QUESTIONS_AT_START = 100
_QUESTIONS_PER_ITERATION = 24
# An iteration that fails is done again.
_MORE_ITERATIONS = 10
_SHARES = ("largest_share", "delta")


@dataclass(frozen=True)
class Policy:
    """What a site answers, and to whom.

    Attributes
    ----------
    minimum_images : int, default 10
        Fewest images that an answer, or a group in an answer, may cover.
    questions : tuple of str, default all
        Questions of `sums.FIELDS`, `sums.POSING` and `sums.ANALYSES` that are answered.
    iterations : int, default 200
        Most iterations of a fit.
    fits : int, default 1
        Most fits that may ask about these images.
    analyses : int, default 10
        Most questions of analyses (`sums.ANALYSES`), over all analyses.
    questions_per_fit : int, default 5000
        Most questions of a fit. Fewer if fewer iterations were announced: see `most_questions`.
    questions_per_year : int, default 20000
        Most questions of all fits and analyses within a year.
    refusals_per_year : int, default 100
        Most refusals within a year. After that nothing is answered, and every message gets the
        same error: refusals tell no more.
    components : int, default 256
        Largest number of components, K.
    images_per_component : float, default 5
        Fewest images at all sites together for each component: with fewer, totals over all images
        tell more about single ones.
    weighted_sums_per_image : float, default 1.25
        Most weighted sums of the images that a fit may tell, for each image: K in every iteration.
        With as many sums as images, single images can be solved for.
    largest_share : float, default 0.9
        Largest share of all images that one site may hold: a total that is nearly that of one site
        does not hide it.
    ranges : dict
        Lowest and highest value of every setting that a coordinator chooses, `DEFAULT_RANGES` by
        default.
    voxels : int, default 2**24
        Most voxels of an image.
    secure_sum : bool, default True
        Whether only masked sums leave the site, summed over at least three sites.
    roster_changes : int, default 2
        How often the roster of a fit may change. Every change reveals to the coordinator, roughly,
        the sums of the sites that left or came.
    exact_statistics : bool, default True
        Whether statistics without noise are answered. If not, only differentially private ones.
    epsilon_per_analysis, epsilon_per_year : float, default 1 and 4
        Largest privacy loss of one differentially private analysis, and of all within a year.
    delta : float, default 1e-5
        Probability with which a privacy loss may be larger, at most, over a year.
    """

    minimum_images: int = 10
    questions: tuple[str, ...] = tuple(FIELDS | POSING | ANALYSES)
    iterations: int = 200
    fits: int = 1
    analyses: int = 10
    questions_per_fit: int = 5000
    questions_per_year: int = 20000
    refusals_per_year: int = 100
    components: int = 256
    images_per_component: float = 5.0
    weighted_sums_per_image: float = 1.25
    largest_share: float = 0.9
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=lambda: dict(DEFAULT_RANGES))
    voxels: int = 2**24
    secure_sum: bool = True
    roster_changes: int = 2
    exact_statistics: bool = True
    epsilon_per_analysis: float = 1.0
    epsilon_per_year: float = 4.0
    delta: float = 1e-5

    @classmethod
    def read(cls, path: Path) -> Policy:
        """Read a policy from a TOML file.

        Parameters
        ----------
        path : Path
            Rules by name; those that it does not mention have their defaults.

        Returns
        -------
        Policy

        Raises
        ------
        PolicyError
            If the file cannot be read, or a rule is unknown or has a wrong value.
        """
        try:
            given = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise PolicyError(f"{path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise PolicyError(f"{path} is not TOML: {error}") from None
        try:
            return cls.checked(given)
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}") from None

    @classmethod
    def checked(cls, given: dict[str, Any]) -> Policy:
        """Return a policy with the given rules, or raise a PolicyError that names the wrong one."""
        known = {rule.name: rule for rule in fields(cls)}
        rules: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known:
                raise PolicyError(f"unknown rule {name!r}; known are {', '.join(known)}")
            if name == "questions":
                rules[name] = _checked_questions(value)
            elif name == "ranges":
                rules[name] = checked_ranges(value)
            else:
                rules[name] = _checked_rule(name, value, type(known[name].default))
        return cls(**rules)

    def check_images(self, n_images: int, what: str = "this site") -> None:
        """Raise a TooFewImagesError if an answer would cover too few images."""
        if n_images < self.minimum_images:
            raise TooFewImagesError(
                f"{what} has fewer images than the {self.minimum_images} that an answer must cover"
            )

    def check_question(self, question: str) -> None:
        """Raise a PolicyError if a question is not on the list."""
        if question not in self.questions:
            raise PolicyError(
                f"question {question!r} is not answered here; answered are "
                f"{', '.join(self.questions) or 'none'}"
            )

    def check_settings(self, settings: Settings, n_iterations: int) -> None:
        """Raise a PolicyError if a model is too large, a fit too long, or a setting out of range.

        Parameters
        ----------
        settings : Settings
            As a coordinator sent them.
        n_iterations : int
            Most iterations of the fit.
        """
        check_layout(settings.layout)
        if type(n_iterations) is not int or n_iterations < 0:
            raise PolicyError(f"n_iter must be an integer >= 0, got {n_iterations!r}")
        for what, given, most in (
            ("components", settings.layout.n_latents, self.components),
            ("iterations", n_iterations, self.iterations),
            ("voxels", math.prod(settings.space), self.voxels),
        ):
            if given > most:
                raise PolicyError(f"this site allows at most {most} {what}, got {given}")
        check_ranges(settings, self.ranges)
        missing = [question for question in POSING if question not in self.questions]
        if settings.has_poses and missing:
            raise PolicyError(
                f"this site answers no questions about poses, so align must be {NONE!r}, got "
                f"{settings.align!r}: change the fit, or add {', '.join(missing)} to 'questions' "
                "in the policy of the site"
            )

    def check_total(self, n_images: int, n_components: int) -> None:
        """Raise a TooFewImagesError if all sites have too few images for the components.

        Parameters
        ----------
        n_images : int
            Images at all sites together: a total that was verified.
        n_components : int
            K.
        """
        if n_images < self.images_per_component * n_components:
            most = int(n_images / self.images_per_component)
            raise TooFewImagesError(
                f"this site asks for {self.images_per_component:g} images per component, and all "
                f"sites have {n_images} for {n_components}: fit at most {most} components"
            )

    def check_weighted_sums(self, n_images: int, n_components: int, n_iterations: int) -> None:
        """Raise a TooFewImagesError if a fit would tell too many sums for its images.

        In every iteration it tells K sums of all images, weighted by latents. As many sums as
        images determine the images but for a rotation, and that they are images tells the
        rotation. Warps blur that, but settings or a colluding site can keep warps small.

        Parameters
        ----------
        n_images : int
            Images at all sites together: a total that was verified.
        n_components : int
            K.
        n_iterations : int
            Most iterations of the fit, as it was announced.
        """
        n_sums = n_components * n_iterations
        if n_sums > self.weighted_sums_per_image * n_images:
            most = int(self.weighted_sums_per_image * n_images / n_components)
            raise TooFewImagesError(
                f"{n_iterations} iterations with {n_components} components tell {n_sums} weighted "
                f"sums of {n_images} images, and this site allows "
                f"{self.weighted_sums_per_image:g} for each image: fit at most {most} iterations, "
                "or fewer components"
            )

    def check_counts(self, counts: Mapping[str, int]) -> None:
        """Raise a PolicyError if one site holds nearly all images, or a count is none.

        Parameters
        ----------
        counts : dict
            Number of images by name of the site, as agreed at the start of a fit.
        """
        for name, count in counts.items():
            if type(count) is not int or count < 1:
                raise PolicyError(f"{name} must have a number of images >= 1, got {count!r}")
        total = sum(counts.values())
        for name, count in counts.items():
            if count > self.largest_share * total:
                raise PolicyError(
                    f"{name} has {count} of {total} images, and this site allows one site at most "
                    f"{self.largest_share:g} of them: totals would be nearly those of that site"
                )

    def most_questions(self, n_iterations: int) -> int:
        """Return how many questions a fit may ask.

        An iteration of an honest fit asks five questions, or 21 if every step is halved as often
        as it can be.

        Parameters
        ----------
        n_iterations : int
            Most iterations of the fit, as it was announced.

        Returns
        -------
        int
        """
        derived = _QUESTIONS_AT_START + _QUESTIONS_PER_ITERATION * n_iterations
        return min(self.questions_per_fit, derived)

    def most_iterations(self, n_iterations: int | None) -> int:
        """Return how many iterations a fit may take, those that are done again included.

        With the same sites an iteration that is done again tells nothing new. But one site that
        answers differently makes it an iteration more, with K more weighted sums.

        Parameters
        ----------
        n_iterations : int or None
            Most iterations of the fit, as it was announced. None: it is not known.

        Returns
        -------
        int
        """
        if n_iterations is None:
            return self.iterations
        return min(self.iterations, 2 * n_iterations + _MORE_ITERATIONS)

    def check_roster(self, name: str, roster: list[str], is_masked: bool) -> None:
        """Raise an error for a roster without this site, or one that would not hide its sums."""
        if name not in roster or len(set(roster)) != len(roster):
            raise RosterError(f"the roster must list {name}, and every site once, got {roster}")
        if self.secure_sum and not is_masked:
            raise PolicyError("only masked sums leave this site: ask with secure sum")
        if is_masked:
            check_enough_sites(len(roster))


def _checked_rule(name: str, value: Any, kind: type) -> Any:
    """Return the value of a rule that is true or false, an integer or a number."""
    if kind is bool:
        if not isinstance(value, bool):
            raise PolicyError(f"{name} must be true or false, got {value!r}")
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int and (not is_number or not isinstance(value, int) or value < 0):
        raise PolicyError(f"{name} must be an integer >= 0, got {value!r}")
    if not is_number or not 0 <= value < math.inf:
        raise PolicyError(f"{name} must be a number >= 0, got {value!r}")
    if name in _SHARES and value > 1:
        raise PolicyError(f"{name} must be a number from 0 to 1, got {value!r}")
    return kind(value)


def _checked_questions(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PolicyError(f"questions must be a list of names, got {value!r}")
    for question in value:
        known = FIELDS | POSING | ANALYSES
        if question not in known:
            raise PolicyError(f"unknown question {question!r}; known are {', '.join(known)}")
    return tuple(value)
