"""Arguments and options that several commands share, with the help that they show.

Those that set up a model and its fit come from the table of hyperparameters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from anamorph.cli.terminal.settings import setting_option
from anamorph.model.hyperparameters import FITTING, IMAGES

_TALK_PANEL = "Messages"

_IMAGES_HELP = (
    "Image files, folders of them, or quoted patterns like 'scans/*.nii.gz' "
    "(NIfTI, PNG, JPEG, TIFF, .npy, .npz; one image per file)."
)

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model file, as written by 'anamorph fit'.")
]
Images = Annotated[list[str], typer.Argument(metavar="IMAGES", help=_IMAGES_HELP)]
OptionalImages = Annotated[list[str] | None, typer.Argument(metavar="IMAGES", help=_IMAGES_HELP)]
OutputFolder = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write to; made if need be."),
]
ModelOutput = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Model file to write. Latents go beside it, to FILE's name with .latents.tsv.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=FITTING,
        help="Written after every iteration, resumed from if it exists, and removed at the end; "
        "by default beside the model, with .checkpoint.",
    ),
]
Latents = Annotated[
    Path | None,
    typer.Option(
        metavar="TSV", help="Table of latents, as written by 'fit' or 'encode', instead of images."
    ),
]
Force = Annotated[
    bool, typer.Option("--force", "-f", metavar="", help="Replace output files that exist already.")
]
Threads = Annotated[int | None, setting_option("n_threads")]
Device = Annotated[str | None, setting_option("device")]
Memory = Annotated[str | None, setting_option("memory_budget")]
Likelihood = Annotated[str | None, setting_option("likelihood")]
ChannelAxis = Annotated[int | None, setting_option("channel_axis")]
Probabilities = Annotated[
    bool,
    typer.Option(
        "--probabilities",
        metavar="",
        help="Categorical models: write probabilities of all classes, and not a map of the number "
        "of the most probable class (from 0; the background of tissue maps is the last).",
    ),
]

Tissues = Annotated[
    bool,
    typer.Option(
        "--tissues",
        metavar="",
        rich_help_panel=IMAGES,
        help="Images are tissue maps, several files per subject: give one quoted pattern for each "
        "class, e.g. 'rc1*.nii' 'rc2*.nii'. What they leave is the background.",
    ),
]
ParticipantsTable = Annotated[
    Path | None,
    typer.Option(
        "--participants",
        metavar="TSV",
        rich_help_panel=IMAGES,
        help="Table with a column participant_id (BIDS): use only images of these participants, "
        "and name them by it. By default images are named by their files.",
    ),
]
Resample = Annotated[
    bool,
    typer.Option(
        "--resample",
        metavar="",
        rich_help_panel=IMAGES,
        help="Bring all images onto one grid by their affines; what lies outside is missing.",
    ),
]
Pad = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        rich_help_panel=IMAGES,
        help="Add a missing margin of N voxels, so that what leaves the image on one side does "
        "not come back on the other.",
    ),
]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="FOLDER",
        rich_help_panel=IMAGES,
        help="Keep decoded images here for the next command; by default in a temporary folder.",
    ),
]

Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        metavar="",
        rich_help_panel=_TALK_PANEL,
        help="Say nothing but errors and what was asked for.",
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        metavar="",
        rich_help_panel=_TALK_PANEL,
        help="End with one JSON object on standard output; everything else goes to standard error.",
    ),
]
