"""The policy of a site: rules in its own TOML file, enforced by its own agent."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from anamorph.federation.protocol.errors import PolicyError, RosterError, TooFewImagesError
from anamorph.federation.protocol.roster import check_enough_sites
from anamorph.fitting.sums import ANALYSES, FIELDS
from anamorph.model.settings import Settings


@dataclass(frozen=True)
class Policy:
    """What a site answers, and to whom.

    Attributes
    ----------
    minimum_images : int, default 10
        Fewest images that an answer, or a group in an answer, may cover.
    questions : tuple of str, default all
        Questions of `sums.FIELDS` and `sums.ANALYSES` that are answered.
    iterations : int, default 200
        Most iterations of a fit.
    fits : int, default 1
        Most fits that may ask about these images.
    analyses : int, default 10
        Most questions of analyses (`sums.ANALYSES`), over all analyses: two groups that differ by
        one image reveal it.
    components : int, default 256
        Largest number of components, K.
    voxels : int, default 2**24
        Most voxels of an image.
    secure_sum : bool, default True
        Whether only masked sums leave the site, summed over at least three sites.
    roster_changes : int, default 2
        How often the roster of a fit may change. Every change reveals to the coordinator, roughly,
        the sums of the sites that left or came.
    """

    minimum_images: int = 10
    questions: tuple[str, ...] = tuple(FIELDS | ANALYSES)
    iterations: int = 200
    fits: int = 1
    analyses: int = 10
    components: int = 256
    voxels: int = 2**24
    secure_sum: bool = True
    roster_changes: int = 2

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
        known = [rule.name for rule in fields(cls)]
        for name, value in given.items():
            if name not in known:
                raise PolicyError(f"unknown rule {name!r}; known are {', '.join(known)}")
            if name == "questions":
                _check_questions(value)
            elif name == "secure_sum":
                if not isinstance(value, bool):
                    raise PolicyError(f"secure_sum must be true or false, got {value!r}")
            elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise PolicyError(f"{name} must be an integer >= 0, got {value!r}")
        if "questions" in given:
            given = given | {"questions": tuple(given["questions"])}
        return cls(**given)

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
        """Raise a PolicyError if a model is too large, or a fit too long."""
        for what, given, most in (
            ("components", settings.layout.n_latents, self.components),
            ("iterations", n_iterations, self.iterations),
            ("voxels", math.prod(settings.space), self.voxels),
        ):
            if given > most:
                raise PolicyError(f"this site allows at most {most} {what}, got {given}")

    def check_counts(self, counts: Mapping[str, int]) -> None:
        """Raise a PolicyError if one site has nearly all images."""

    def check_total(self, n_images: int, n_components: int) -> None:
        """Raise a PolicyError if there are too few images for a number of components."""

    def check_roster(self, name: str, roster: list[str], is_masked: bool) -> None:
        """Raise an error for a roster without this site, or one that would not hide its sums."""
        if name not in roster or len(set(roster)) != len(roster):
            raise RosterError(f"the roster must list {name}, and every site once, got {roster}")
        if self.secure_sum and not is_masked:
            raise PolicyError("only masked sums leave this site: ask with secure sum")
        if is_masked:
            check_enough_sites(len(roster))


def _check_questions(value: object) -> None:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PolicyError(f"questions must be a list of names, got {value!r}")
    for question in value:
        if question not in FIELDS | ANALYSES:
            raise PolicyError(
                f"unknown question {question!r}; known are {', '.join(FIELDS | ANALYSES)}"
            )
