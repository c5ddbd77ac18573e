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
from anamorph.model.checks import (
    SEEDS,
    THREADS,
    Accepted,
    choices,
    integers,
    numbers,
    unchecked,
)

#: What the latents of a model may control.
LAYOUTS = ("joint", "separate", "shape", "appearance")

#: Whether intensities are those of the images, or each has a gain and an offset of its own, or a
#: smooth field as well.
GLOBAL = "global"
INTENSITIES = (GLOBAL, "per image", "smooth")

#: When residual warps of images, beyond the modes, are found: not, at the end of a fit, or in every
#: iteration.
INSIDE = "inside"
RESIDUALS = ("none", "after", INSIDE)
#: Iterations in which modes explain what they can, before residual warps begin that are found in
#: every iteration: otherwise these explain what modes of appearance should, and points that
#: correspond move apart.
MODES_FIRST = 10

#: What the images decide on: the weight of the likelihood, the number of grids.
AUTO = "auto"

MODEL, FITTING, MACHINE, IMAGES = "Model", "Fitting", "Machine", "Images"

_WITH_SHAPE = ("joint", "separate", "shape")
_BY_LIKELIHOOD = "those of the likelihood"


def _likelihood_names() -> tuple[str, ...]:
    from anamorph.likelihoods import LIKELIHOODS

    return tuple(LIKELIHOODS)


def _device_names() -> tuple[str, ...]:
    from anamorph.arrays.devices import DEVICES

    return DEVICES


def _alignments() -> tuple[str, ...]:
    from anamorph.geometry.pose import ALIGNMENTS

    return ALIGNMENTS


def _weights(count: int) -> Accepted:
    def check(name: str, value: Any) -> tuple[float, ...]:
        from anamorph.geometry.fields import check_penalty

        return check_penalty(value, count, name)

    return Accepted(f"{count} numbers >= 0, not all 0", check)


_COMPONENTS = Accepted(
    "an integer >= 1, or two with separate latents",
    lambda _, value: checks.checked_components(value),
)
_WEIGHT = Accepted(
    "a positive number or 'auto'",
    lambda name, value: value if value == AUTO else checks.check_weight(name, value),
)
_LEVELS = Accepted(
    "an integer >= 1 or 'auto'",
    lambda name, value: value if value == AUTO else checks.check_count(name, value, 1),
)
_BALANCE = Accepted("two numbers, > 0 and >= 0", lambda _, value: checks.checked_balance(value))


def _checked_scale(_: str, value: Any) -> str | float | None:
    from anamorph.images.intensity import checked_scale

    return checked_scale(value)


_SCALE = Accepted('"none", "robust", "zscore", "match" or a positive number', _checked_scale)


def likelihood_briefs() -> dict[str, str]:
    """Return what each likelihood is for, in a word, by its name.

    Read from the attributes `name` and `brief` in their files: importing them would import Numba.
    """
    briefs = {}
    for path in sorted((Path(__file__).parents[1] / "likelihoods").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        found = dict(re.findall(r'^    (name|brief) = "(.+)"$', text, re.MULTILINE))
        if "name" in found:
            briefs[found["name"]] = found.get("brief", "")
    return briefs


def _listed_likelihoods() -> str:
    briefs = likelihood_briefs().items()
    *others, last = (f"{name} ({brief})" if brief else name for name, brief in briefs)
    return f"{', '.join(others)} or {last}"


def _shown(value: Any) -> str:
    """Return a value for people: numbers in short, several of them separated by commas."""
    if isinstance(value, tuple):
        return ", ".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


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
    help : str
        What it does, in one sentence that does not say the default.
    none_means : str
        What a default of None stands for, where it stands for something.
    layouts : tuple of str
        For which `latents` it has an effect; by default all.
    flag, short : str
        Its names on the command line, e.g. "--components" and "-k"; "" where it has none.
    typed : str
        What people type there, as the help calls it: an integer "N", a "NUMBER" or "SHARE", a
        "NAME", "NUMBERS" (some, or e.g. 5), the number "K" of latents, a "SIZE", a "COUNT" or auto.
    lowest_typed : int or None
        Refused below it as soon as it is typed, also by commands that fit nothing.
    label : str
        What the report calls it; "" where it does not mention it.
    shown : callable
        From a value to the text that the report shows.
    """

    name: str
    default: Any
    accepted: Accepted
    group: str
    help: str
    none_means: str = ""
    layouts: tuple[str, ...] = LAYOUTS
    flag: str = ""
    short: str = ""
    typed: str = "NAME"
    lowest_typed: int | None = None
    label: str = ""
    shown: Callable[[Any], str] = _shown

    @property
    def key(self) -> str:
        """The key in TOML files: the flag without its dashes."""
        return self.flag.removeprefix("--")

    @property
    def is_fixed_by_fit(self) -> bool:
        """Whether a fitted model keeps the value that it was fitted with."""
        return self.group == MODEL or self.name == "n_steps"

    @property
    def default_words(self) -> str:
        """The default for people, or "" where there is none."""
        return self.none_means if self.default is None else _shown(self.default)

    def checked(self, value: Any) -> Any:
        """Return a value as plain Python, or raise an `ArgumentError`."""
        if value is None and self.default is None:
            return None
        with checks.argument_errors():
            return self.accepted.check(self.name, value)


# fmt: off
_TABLE = (
    Hyperparameter(
        "n_components", 16, _COMPONENTS, MODEL,
        "Number of latents; with --latents separate half of them are for shape, or as 'A,S' says",
        flag="--components", short="-k", typed="K", label="Latents",
    ),
    Hyperparameter(
        "likelihood", "gaussian", choices(_likelihood_names), MODEL,
        f"What images hold: {_listed_likelihoods()}",
        flag="--likelihood", label="Likelihood",
    ),
    Hyperparameter(
        "latents", "joint", choices(lambda: LAYOUTS), MODEL,
        "What a latent controls: joint (shape and appearance), separate (one of them), shape or "
        "appearance (the model has nothing else)",
        flag="--latents",
    ),
    Hyperparameter(
        "shape_penalty", None, _weights(5), MODEL,
        "Weights of size, stretching, bending, elasticity and divergence of velocities, "
        "e.g. 0.002,0.02,2,0.2,0.2",
        none_means=_BY_LIKELIHOOD, layouts=_WITH_SHAPE,
        flag="--shape-penalty", typed="5 NUMBERS", label="Shape penalty",
        shown=_named_weights("size", "stretching", "bending", "elasticity", "divergence"),
    ),
    Hyperparameter(
        "appearance_penalty", None, _weights(3), MODEL,
        "Weights of size, stretching and bending of modes of appearance",
        none_means=_BY_LIKELIHOOD, layouts=("joint", "separate", "appearance"),
        flag="--appearance-penalty", typed="3 NUMBERS", label="Appearance penalty",
        shown=_named_weights("size", "stretching", "bending"),
    ),
    Hyperparameter(
        "mean_penalty", None, _weights(3), MODEL,
        "Weights of size, stretching and bending of the mean, per image",
        none_means=_BY_LIKELIHOOD,
        flag="--mean-penalty", typed="3 NUMBERS", label="Mean penalty",
        shown=_named_weights("size", "stretching", "bending"),
    ),
    Hyperparameter(
        "balance", (1.0, 1.0), _BALANCE, MODEL,
        "Weights of the penalties on modes, and on what they reconstruct",
        flag="--balance", typed="2 NUMBERS", label="Balance",
        shown=lambda balance: "λ₁ = {:g}, λ₂ = {:g}".format(*balance),
    ),
    Hyperparameter(
        "prior_dof", None, numbers("a number > K - 1, or 0 for maximum likelihood"), MODEL,
        "Weight, in images, of the prior that latents are white",
        none_means="K",
        flag="--prior-dof", typed="NUMBER", label="Prior degrees of freedom",
        shown=lambda prior_dof: f"ν₀ = {prior_dof:g}",
    ),
    Hyperparameter(
        "decimation", AUTO, _WEIGHT, MODEL,
        "Weight of the likelihood, below 1 where neighbouring voxels say the same; auto: 1 in the "
        "fit, and found from its images where new ones are predicted or residual warps found",
        flag="--decimation", typed="WEIGHT", label="Decimation",
    ),
    Hyperparameter(
        "intensity", GLOBAL, choices(lambda: INTENSITIES), MODEL,
        "Whose intensities count: global (those of the images), 'per image' (each image "
        "has a gain and an offset of its own) or smooth (and a smooth field that multiplies it)",
        flag="--intensity", label="Intensity",
    ),
    Hyperparameter(
        "voxel_size", None, unchecked("a positive number for each axis"), MODEL,
        "Size of a voxel along each axis",
        none_means="that of the files, or 1",
        flag="--voxel-size", typed="NUMBERS", label="Voxel size",
        shown=lambda size: " × ".join(f"{length:.4g}" for length in size),
    ),
    Hyperparameter(
        "align", "none", choices(_alignments), MODEL,
        "What poses may do to bring images onto the template: none, translation, rigid, "
        "similarity or affine",
        flag="--align", label="Alignment",
    ),
    Hyperparameter(
        "residual", "none", choices(lambda: RESIDUALS), MODEL,
        "When warps beyond the modes of shape are learnt, one for each image: none, after (the "
        f"fit), or inside (iterations from the {MODES_FIRST + 1}th: the template becomes sharper)",
        layouts=_WITH_SHAPE,
        flag="--residual", label="Residual warps",
    ),
    Hyperparameter(
        "n_iter", 20, integers(0), FITTING,
        "EM iterations, each of which improves mean, modes and latents",
        flag="--iterations", typed="N", label="Iterations",
    ),
    Hyperparameter(
        "levels", 1, _LEVELS, FITTING,
        "Number of grids, each of twice the resolution of the one before: most iterations are done "
        "on coarse ones, and only the last few on that of the images; auto: as many as help",
        flag="--levels", typed="COUNT", label="Grids",
    ),
    Hyperparameter(
        "tol", None, numbers("a number >= 0"), FITTING,
        "Stop when an iteration adds less than this share of the total rise so far",
        flag="--tol", typed="SHARE", label="Tolerance",
    ),
    Hyperparameter(
        "n_steps", 8, integers(1), FITTING,
        "Steps of geodesic shooting: larger warps need more",
        layouts=_WITH_SHAPE,
        flag="--steps", typed="N", label="Shooting steps",
    ),
    Hyperparameter(
        "random_state", None, SEEDS, FITTING,
        "Seed of the starting latents: the same seed gives the same model",
        none_means="0",
        flag="--seed", typed="N", label="Random seed",
    ),
    Hyperparameter(
        "memory_budget", None, integers(1), FITTING,
        "Memory for batches of images, e.g. 4GB",
        none_means="2GiB, on a GPU what is free",
        flag="--memory", typed="SIZE",
    ),
    Hyperparameter(
        "n_threads", None, THREADS, MACHINE,
        "Threads to use",
        none_means="as many as processors",
        flag="--threads", typed="N", lowest_typed=1,
    ),
    Hyperparameter(
        "device", "cpu", choices(_device_names), MACHINE,
        "Where to compute: cpu, cuda (a GPU), or auto (the GPU if it pays)",
        flag="--device",
    ),
    Hyperparameter(
        "verbose", False, unchecked("True or False"), MACHINE,
        "Print the objective after every iteration, and how long the rest will take",
    ),
    Hyperparameter(
        "channel_axis", None, unchecked("an axis of the stacked images"), IMAGES,
        "Where arrays and 4D NIfTI files hold channels or classes: -1 for the last axis",
        flag="--channel-axis", typed="N",
    ),
    Hyperparameter(
        "scale", None, _SCALE, IMAGES,
        "Scale intensities: robust (each image by its typical intensity), zscore (mean 0, standard "
        "deviation 1), match (quantiles become the average of all images), a number to divide by, "
        "or none",
        none_means="only integers, by what stands for 1 among them",
        flag="--scale", typed="HOW", label="Scale",
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
