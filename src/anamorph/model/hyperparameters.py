"""The table of hyperparameters: all that can be set about a model and its fit, each in one entry.

From it come the checks of `ShapeAppearanceModel`, the options of the command line, the keys of TOML
files, the rows of the report and the table in the documentation. Nothing here imports NumPy or
Numba before a value is checked, because ``anamorph --help`` shows this table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anamorph.model import checks
from anamorph.model.checks import Accepted, choices, integers, numbers, unchecked

#: What the latents of a model may control.
LAYOUTS = ("joint", "separate", "shape", "appearance")

MODEL, FITTING, MACHINE, IMAGES = "Model", "Fitting", "Machine", "Images"

_WITH_SHAPE = ("joint", "separate", "shape")
_BY_LIKELIHOOD = " for this likelihood"


def _likelihood_names() -> tuple[str, ...]:
    from anamorph.likelihoods import LIKELIHOODS

    return tuple(LIKELIHOODS)


def _device_names() -> tuple[str, ...]:
    from anamorph.arrays.devices import DEVICES

    return DEVICES


def _weights(count: int) -> Accepted:
    def check(name: str, value: Any) -> tuple[float, ...]:
        from anamorph.geometry.grid import check_penalty

        return check_penalty(value, count, name)

    return Accepted(lambda: f"{count} numbers >= 0, not all 0", check)


_COMPONENTS = Accepted(
    lambda: "an integer >= 1; with separate latents two of them",
    lambda _, value: checks.checked_components(value),
)
_BALANCE = Accepted(
    lambda: "two numbers, > 0 and >= 0", lambda _, value: checks.checked_balance(value)
)


def likelihood_summaries() -> dict[str, str]:
    """Return what each likelihood is for, by its name, without importing Numba.

    Each has a file of its name, whose first words say it, up to a comma or colon.
    """
    folder = Path(__file__).parents[1] / "likelihoods"
    files = [path for path in folder.glob("[!_]*.py") if path.stem != "base"]
    return {
        path.stem: re.split("[:,.]", path.read_text(encoding="utf-8").lstrip('"'), maxsplit=1)[0]
        for path in sorted(files)
    }


def _listed_likelihoods() -> str:
    """Return the likelihoods for people, beginning with the default."""
    others = likelihood_summaries()
    words = [f"gaussian ({others.pop('gaussian')}, the default)"]
    words += [f"{name} ({summary[0].lower()}{summary[1:]})" for name, summary in others.items()]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(value: Any) -> str:
    """Return a value for people; None is "none"."""
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)


def _named_weights(*names: str) -> Callable[[Any], str]:
    return lambda weights: ", ".join(
        f"{name} {weight:g}" for name, weight in zip(names, weights, strict=True)
    )


@dataclass(frozen=True)
class Hyperparameter:
    """One entry of the table.

    Attributes
    ----------
    name : str
        The argument of `ShapeAppearanceModel`.
    default : object
        Its default; where it is None, None is accepted.
    accepted : Accepted
    group : {"Model", "Fitting", "Machine", "Images"}
    meaning : str
        What it does, in one sentence, for the report and the documentation.
    flag, short : str
        What it is called on the command line, e.g. "--components" and "-k"; "" where nothing.
        The key in TOML files is the flag without its dashes.
    typed : str
        What people type on the command line, as its help calls it: an integer "N", a "NUMBER" or
        "SHARE", a "NAME", "NUMBERS" (some, or e.g. 5), the number "K" of latents, a "SIZE".
    help : str
        Shown by the command line.
    lowest_typed : int or None
        Refused below it as soon as it is typed, by commands that fit nothing, too.
    label : str
        What the report calls it; "" where it does not mention it.
    shown : callable
        From the value to the text that the report shows.
    when_none : object
        What None stands for.
    default_words : str
        What a default of None stands for, after the word "default".
    layouts : tuple of str
        For which `latents` it has an effect.
    """

    name: str
    default: Any
    accepted: Accepted
    group: str
    meaning: str
    flag: str = ""
    short: str = ""
    typed: str = "NAME"
    help: str = ""
    lowest_typed: int | None = None
    label: str = ""
    shown: Callable[[Any], str] = _shown
    when_none: Any = None
    default_words: str = ""
    layouts: tuple[str, ...] = LAYOUTS

    @property
    def key(self) -> str:
        """The key in TOML files, or "" where it has none."""
        return self.flag.removeprefix("--")

    def checked(self, value: Any) -> Any:
        """Return a value as plain Python, or raise an `ArgumentError`."""
        if value is None and self.default is None:
            return self.when_none
        with checks.argument_errors():
            return self.accepted.check(self.name, value)


# fmt: off
_TABLE = (
    Hyperparameter(
        "n_components", 16, _COMPONENTS, MODEL, typed="K", flag="--components", short="-k",
        label="Latents",
        meaning="Number K of latents, which describe an image; less than the number of images.",
        help="Number of latents; 'A,S' for appearance and shape with --latents separate. "
        "By default 16.",
    ),
    Hyperparameter(
        "likelihood", "gaussian", choices(_likelihood_names), MODEL, flag="--likelihood",
        label="Likelihood",
        meaning="What the values of images are, and how they scatter.",
        help=f"What images hold: {_listed_likelihoods()}.",
    ),
    Hyperparameter(
        "latents", "joint", choices(lambda: LAYOUTS), MODEL, flag="--latents",
        meaning="Whether a latent controls shape and appearance, one of the two, or the model has "
        "only one of them.",
        help="What a latent controls: joint (shape and appearance, the default), separate (one "
        "of them), shape or appearance (the model has nothing else).",
    ),
    Hyperparameter(
        "shape_penalty", None, _weights(5), MODEL, typed="5 NUMBERS", flag="--shape-penalty",
        label="Shape penalty", default_words=_BY_LIKELIHOOD, layouts=_WITH_SHAPE,
        shown=_named_weights("size", "stretching", "bending", "elasticity", "divergence"),
        meaning="Keeps warps small and smooth: larger weights, stiffer warps.",
        help="Weights of size, stretching, bending, elasticity and divergence of velocities, "
        "e.g. 0.002,0.02,2,0.2,0.2.",
    ),
    Hyperparameter(
        "appearance_penalty", None, _weights(3), MODEL, typed="3 NUMBERS",
        flag="--appearance-penalty", label="Appearance penalty", default_words=_BY_LIKELIHOOD,
        shown=_named_weights("size", "stretching", "bending"),
        layouts=("joint", "separate", "appearance"),
        meaning="Keeps modes of appearance small and smooth.",
        help="Weights of size, stretching and bending of modes of appearance.",
    ),
    Hyperparameter(
        "mean_penalty", None, _weights(3), MODEL, typed="3 NUMBERS", flag="--mean-penalty",
        label="Mean penalty", default_words=_BY_LIKELIHOOD,
        shown=_named_weights("size", "stretching", "bending"),
        meaning="Keeps the mean image smooth; counted once per image.",
        help="The same for the mean, per image.",
    ),
    Hyperparameter(
        "balance", (1.0, 1.0), _BALANCE, MODEL, typed="2 NUMBERS", flag="--balance",
        label="Balance", shown=lambda balance: "λ₁ = {:g}, λ₂ = {:g}".format(*balance),
        meaning="Weights of the penalties on bases and latents one by one, and on the fields that "
        "they make together.",
        help="Weights of the penalties on modes, and on what they reconstruct.",
    ),
    Hyperparameter(
        "prior_dof", None, numbers("a number > K - 1, or 0 for maximum likelihood"), MODEL,
        typed="NUMBER", flag="--prior-dof", label="Prior degrees of freedom",
        shown=lambda prior_dof: f"ν₀ = {prior_dof:g}", default_words=": K",
        meaning="Weight, in images, of the prior that latents are independent with variance 1.",
        help="Weight, in images, of the prior that latents are white; by default K.",
    ),
    Hyperparameter(
        "decimation", 1.0, numbers("a positive number", is_positive=True), MODEL, typed="NUMBER",
        flag="--decimation", label="Decimation",
        meaning="Weight of the data; below 1 where neighbouring voxels are not independent.",
        help="Weight of the likelihood, below 1 where neighbouring voxels say the same.",
    ),
    Hyperparameter(
        "voxel_size", None, unchecked("a positive number for each axis"), MODEL,
        typed="NUMBERS", flag="--voxel-size", label="Voxel size",
        shown=lambda size: " × ".join(f"{length:.4g}" for length in size),
        default_words=": that of the files, or 1",
        meaning="Size of a voxel along each axis, to which penalties refer.",
        help="Size of a voxel along each axis; by default that of the files, or 1.",
    ),
    Hyperparameter(
        "n_iter", 20, integers(0), FITTING, typed="N", flag="--iterations", label="Iterations",
        meaning="Rounds in which mean, modes and latents are each improved once.",
        help="EM iterations; by default 20.",
    ),
    Hyperparameter(
        "tol", None, numbers("a number >= 0"), FITTING, typed="SHARE", flag="--tol",
        label="Tolerance",
        meaning="The fit ends early when an iteration adds less than this share of the whole rise.",
        help="Stop when an iteration adds less than this share of the total rise so far.",
    ),
    Hyperparameter(
        "n_steps", 8, integers(1), FITTING, typed="N", flag="--steps", label="Shooting steps",
        layouts=_WITH_SHAPE,
        meaning="Steps from an initial velocity to its warp; large warps need more.",
        help="Steps of geodesic shooting; by default 8.",
    ),
    Hyperparameter(
        "random_state", None, integers(0), FITTING, typed="N", flag="--seed", label="Random seed",
        when_none=0,
        meaning="Seed of the latents that the fit starts from: the same seed gives the same model.",
        help="Seed of the starting latents; by default 0.",
    ),
    Hyperparameter(
        "memory_budget", None, integers(1), FITTING, typed="SIZE", flag="--memory",
        default_words=": 2 GiB; on a GPU what is free",
        meaning="Bytes for batches of images and what is kept of them; on a GPU all that is used.",
        help="For batches of images, e.g. 4GB; by default 2GiB.",
    ),
    Hyperparameter(
        "n_threads", None, integers(1), MACHINE, typed="N", flag="--threads", lowest_typed=1,
        default_words=": as many as processors",
        meaning="Number of threads to use.",
        help="Threads to use; by default as many as processors.",
    ),
    Hyperparameter(
        "device", "cpu", choices(_device_names), MACHINE, flag="--device",
        meaning="Where to compute; auto is a GPU where there is one and the work is large enough.",
        help="Where to compute: cpu (by default), cuda (a GPU), or auto (the GPU if it pays).",
    ),
    Hyperparameter(
        "verbose", False, unchecked("True or False"), MACHINE,
        meaning="Print the objective after every iteration, and how long the rest will take.",
    ),
    Hyperparameter(
        "channel_axis", None, unchecked("an axis of the stacked images"), IMAGES,
        typed="N", flag="--channel-axis",
        meaning="Which axis of the stacked images holds channels or classes, e.g. -1.",
        help="Where arrays and 4D NIfTI files hold channels or classes: -1 for the last axis.",
    ),
)
# fmt: on

#: All hyperparameters, by the argument of `ShapeAppearanceModel`.
HYPERPARAMETERS: Mapping[str, Hyperparameter] = {entry.name: entry for entry in _TABLE}
#: Flags of the command line, by the argument that they set.
FLAGS = {entry.name: entry.flag for entry in _TABLE if entry.flag}
#: Keys of TOML files, and the arguments that they set.
KEYS = {entry.key: entry.name for entry in _TABLE if entry.flag}


def checked_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of the estimator as plain Python, each checked on its own.

    Parameters
    ----------
    arguments : dict
        All of them, or some.

    Returns
    -------
    dict
        The same arguments.

    Raises
    ------
    ArgumentError
        If a value is not accepted.
    """
    return {
        name: entry.checked(arguments[name])
        for name, entry in HYPERPARAMETERS.items()
        if name in arguments
    }
