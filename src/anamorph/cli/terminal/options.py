"""Arguments and options that several commands share, with the help that they show.

Those that set up a model and its fit come from the table of hyperparameters. The decorator
`command` lets one parameter of a command stand for options that always occur together.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from anamorph.cli.terminal.messages import talking
from anamorph.cli.terminal.places import checked_folder
from anamorph.model.hyperparameters import FITTING, HYPERPARAMETERS, IMAGES, KEYS, MACHINE, MODEL

Command = Callable[..., None]

_TALK = "Messages"

_IMAGES_HELP = (
    "Image files, folders of them, or quoted patterns like 'scans/*.nii.gz' "
    "(NIfTI, .mgz, .mgh, Analyze, PNG, JPEG, TIFF, .npy, .npz; one image per file)."
)


def _option(help_text: str, *names: str, metavar: str = "", panel: str | None = None) -> Any:
    """Return an option; without a metavar it is a switch."""
    return typer.Option(*names, metavar=metavar, rich_help_panel=panel, help=help_text)


def setting_option(name: str) -> Any:
    """Return the option of a hyperparameter, with its help and default."""
    entry = HYPERPARAMETERS[name]
    default = f"; by default {entry.default_words}" if entry.default_words else ""
    return typer.Option(
        *filter(None, (entry.flag, entry.short)),
        metavar=entry.typed,
        min=entry.lowest_typed,
        rich_help_panel=None if entry.group == MACHINE else entry.group,
        help=f"{entry.help}{default}.",
    )


ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model file, as written by 'anamorph fit'.")
]
Images = Annotated[list[str], typer.Argument(metavar="IMAGES", help=_IMAGES_HELP)]
OutputFolder = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FOLDER",
        callback=checked_folder,
        help="Folder to write to; made if need be.",
    ),
]
ModelOutput = Annotated[
    Path,
    _option(
        "Model file to write. Latents go beside it, to FILE's name with .latents.tsv.",
        "--output",
        "-o",
        metavar="FILE",
    ),
]
Preset = Annotated[
    str | None,
    _option(
        "Settings of the paper: faces, digits, brains2d or brains3d. Everything else that is set "
        "overrides them.",
        metavar="NAME",
        panel=MODEL,
    ),
]
Config = Annotated[
    Path | None,
    _option(
        "Settings from a file, e.g. 'components = 20', which flags override. Keys are "
        f"{', '.join(KEYS)}.",
        metavar="TOML",
        panel=MODEL,
    ),
]
Labels = Annotated[
    bool,
    _option(
        "Images are label maps: the same as --likelihood categorical.", "--labels", panel=MODEL
    ),
]
Checkpoint = Annotated[
    Path | None,
    _option(
        "Written after every iteration, resumed from if it exists, and removed at the end; by "
        "default beside the model, with .checkpoint.",
        metavar="FILE",
        panel=FITTING,
    ),
]
Holdout = Annotated[
    float,
    _option(
        "Share of the images, e.g. 0.1, that take no part in the fit: their evidence after every "
        "iteration shows how well new images are explained. None by default.",
        metavar="SHARE",
        panel=FITTING,
    ),
]
Latents = Annotated[
    Path | None,
    _option("Table of latents, as written by 'fit' or 'encode', instead of images.", metavar="TSV"),
]
Residual = Annotated[
    bool,
    _option(
        "Use residual warps too, beyond the modes of shape; with --latents, those that 'encode "
        "--residual' wrote beside the table.",
        "--residual",
    ),
]
Force = Annotated[bool, _option("Replace output files that exist already.", "--force", "-f")]
Threads = Annotated[int | None, setting_option("n_threads")]
Device = Annotated[str | None, setting_option("device")]
Memory = Annotated[str | None, setting_option("memory_budget")]
Likelihood = Annotated[str | None, setting_option("likelihood")]
ChannelAxis = Annotated[int | None, setting_option("channel_axis")]
Probabilities = Annotated[
    bool,
    _option(
        "Categorical models: write probabilities of all classes, and not a map of the number of "
        "the most probable class (from 0; the background of tissue maps is the last).",
        "--probabilities",
    ),
]
Tissues = Annotated[
    bool,
    _option(
        "Images are tissue maps, several files per subject: give one quoted pattern for each "
        "class, e.g. 'rc1*.nii' 'rc2*.nii'. What they leave is the background.",
        "--tissues",
        panel=IMAGES,
    ),
]
ParticipantsTable = Annotated[
    Path | None,
    _option(
        "Table with a column participant_id (BIDS): use only images of these participants, and "
        "name them by it. By default images are named by their files.",
        "--participants",
        metavar="TSV",
        panel=IMAGES,
    ),
]
Resample = Annotated[
    bool | None,
    _option(
        "Whether to bring images that are on different grids onto one by their affines, of a "
        "model or one that holds all of them; what lies outside an image is missing. By default "
        "if their headers say where voxels are.",
        "--resample/--no-resample",
        panel=IMAGES,
    ),
]
Reference = Annotated[
    Path | None,
    _option(
        "Bring all images onto the grid of this file; by default, where grids differ, onto one "
        "that holds all images.",
        "--reference",
        metavar="FILE",
        panel=IMAGES,
    ),
]
MissingValue = Annotated[
    float | None,
    _option(
        "Value in the files that stands for missing, e.g. 0 where crops are filled with zeros. A "
        "model remembers it; by default only NaN is missing.",
        "--missing-value",
        metavar="NUMBER",
        panel=IMAGES,
    ),
]
Mask = Annotated[
    str | None,
    _option(
        "Image that is 0 where voxels are missing, for all images; or a folder or quoted pattern "
        "with one for each, in their order.",
        "--mask",
        metavar="FILE",
        panel=IMAGES,
    ),
]
Bids = Annotated[
    Path | None,
    _option(
        "Take images from this BIDS dataset instead, those with --suffix; outputs are BIDS "
        "derivatives.",
        "--bids",
        metavar="FOLDER",
        panel=IMAGES,
    ),
]
BidsSuffix = Annotated[
    str | None,
    _option(
        "Suffix of the images of a BIDS dataset, e.g. T1w.",
        "--suffix",
        metavar="NAME",
        panel=IMAGES,
    ),
]
BidsEntities = Annotated[
    list[str],
    _option(
        "Entity that images in a BIDS dataset must have, e.g. ses=01; desc= for none. May be given "
        "several times.",
        "--entity",
        metavar="KEY=VALUE",
        panel=IMAGES,
    ),
]
OnInputGrid = Annotated[
    bool,
    _option(
        "Write each image on the grid of its input file, not on that of the model.",
        "--on-input-grid",
    ),
]
_MARGIN = (
    "Add a missing margin of N voxels, so that what leaves the image on one side does not come "
    "back on the other."
)
Pad = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        rich_help_panel=IMAGES,
        show_default="0; with --align a tenth of the longest axis, if images show no background",
        help=_MARGIN,
    ),
]
#: All sites of a federation must have the same.
PadOfSite = Annotated[int, typer.Option(min=0, metavar="N", rich_help_panel=IMAGES, help=_MARGIN)]
CacheFolder = Annotated[
    Path | None,
    _option(
        "Keep decoded images here for the next command; by default in a temporary folder.",
        "--cache",
        metavar="FOLDER",
        panel=IMAGES,
    ),
]
Quiet = Annotated[
    bool, _option("Say nothing but errors and what was asked for.", "--quiet", "-q", panel=_TALK)
]
AsJson = Annotated[
    bool,
    _option(
        "End with one JSON object on standard output; everything else goes to standard error.",
        "--json",
        panel=_TALK,
    ),
]


#: A parameter of a command that stands for one option.
by_name = functools.partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY)
_TALKING = [
    by_name("quiet", default=False, annotation=Quiet),
    by_name("as_json", default=False, annotation=AsJson),
]


def command(name: str | None = None) -> Callable[[Command], Command]:
    """Make a command of a function with a parameter ``messages``.

    Typer makes options from the parameters of a function. In the decorated command, ``messages``
    stands for --quiet and --json. Every parameter whose type is a dataclass stands for the fields
    of the dataclass, whose types are options; the function gets the dataclass.

    Parameters
    ----------
    name : str, optional
        Name of the command in its JSON object; that of the function by default.
    """

    def decorate(function: Command) -> Command:
        groups: dict[str, Any] = {
            own.name: own.annotation
            for own in parameters_of(function)
            if is_dataclass(own.annotation)
        }
        members = {place: parameters_of(group) for place, group in groups.items()}

        def run(*, quiet: bool, as_json: bool, **given: Any) -> None:
            with talking(name or function.__name__, quiet, as_json) as messages:
                for place, group in groups.items():
                    typed = {member.name: given.pop(member.name) for member in members[place]}
                    given[place] = group(**typed)
                function(messages=messages, **given)

        return replace_parameters(run, function, members | {"messages": _TALKING})

    return decorate


def replace_parameters(
    run: Command, command: Command, others: dict[str, list[inspect.Parameter]]
) -> Command:
    """Give `run` the help and the parameters of a command, some of them replaced by others."""
    functools.update_wrapper(run, command)
    shown: list[inspect.Parameter] = []
    for own in parameters_of(command):
        shown += others.get(own.name, [own])
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return run


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function or a dataclass, which are passed by name."""
    own = inspect.signature(function, eval_str=True).parameters.values()
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
