"""What a site lets others ask: its own file, enforced by its own agent."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from anamorph.federation.protocol.errors import PolicyError, RosterError, TooFewImagesError
from anamorph.model.settings import Settings
from anamorph.fitting.sums import ANALYSES, FIELDS

#: Masks need two others to hide behind: with one, a total less one's own sum is the other's.
LEAST_SITES = 3


@dataclass(frozen=True)
class Policy:
    """The rules of a site.

    Attributes
    ----------
    minimum_images : int
        That an answer, or a group in an answer, is about.
    questions : tuple of str
        Which of `sums.FIELDS` and `sums.ANALYSES` are answered.
    iterations : int
        Of a fit, at most.
    fits : int
        How many different fits may ask about these images.
    analyses : int
        How many questions of analyses (`sums.ANALYSES`) are answered in all: groups that differ
        by one image would show it.
    components : int
        K, at most.
    voxels : int
        Of an image, at most.
    secure_sum : bool
        Whether only masked sums leave the site, for at least three sites.
    roster_changes : int
        How often the sites of a fit may change: every change shows the coordinator, roughly, the
        sums of those that left or came.
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
        """Return the policy in a TOML file; what it does not mention is the default."""
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
        """Return the policy of some rules, or raise a PolicyError that says which is wrong."""
        defaults = {rule.name: getattr(cls(), rule.name) for rule in fields(cls)}
        for name, value in given.items():
            if name not in defaults:
                raise PolicyError(f"unknown rule {name!r}; known are {', '.join(defaults)}")
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
        """Refuse an answer about too few images."""
        if n_images < self.minimum_images:
            raise TooFewImagesError(
                f"{what} has fewer images than the {self.minimum_images} that an answer must be "
                "about: nothing is answered"
            )

    def check_question(self, question: str) -> None:
        """Refuse a question that is not on the list."""
        if question not in self.questions:
            raise PolicyError(
                f"question {question!r} is not answered here; answered are "
                f"{', '.join(self.questions) or 'none'}"
            )

    def check_settings(self, settings: Settings, n_iterations: int) -> None:
        """Refuse a model that is too large, or a fit that is too long."""
        n_voxels = 1
        for length in settings.space:
            n_voxels *= length
        for what, given, most in (
            ("components", settings.layout.n_latents, self.components),
            ("iterations", n_iterations, self.iterations),
            ("voxels", n_voxels, self.voxels),
        ):
            if given > most:
                raise PolicyError(f"at most {most} {what} are allowed here, and {given} were asked")

    def check_roster(self, name: str, roster: list[str], is_masked: bool) -> None:
        """Refuse a roster without this site, and sums that would not be hidden."""
        if name not in roster or len(set(roster)) != len(roster):
            raise RosterError(f"the roster must hold {name} and every site once, got {roster}")
        if self.secure_sum and not is_masked:
            raise PolicyError("only masked sums leave this site: ask with secure sum")
        if is_masked and len(roster) < LEAST_SITES:
            raise RosterError(f"a masked sum needs at least {LEAST_SITES} sites, got {len(roster)}")


def _check_questions(value: object) -> None:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PolicyError(f"questions must be a list of names, got {value!r}")
    for question in value:
        if question not in FIELDS | ANALYSES:
            raise PolicyError(
                f"unknown question {question!r}; known are {', '.join(FIELDS | ANALYSES)}"
            )
