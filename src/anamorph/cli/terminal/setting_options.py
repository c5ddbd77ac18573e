"""The options of ``anamorph fit`` that set up a model and its fit, with the help that they show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.flags import KEYS
from anamorph.cli.terminal.likelihoods import likelihood_help

_MODEL = "Model"
_FITTING = "Fitting"
_IMAGES = "Images"

ModelOutput = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Model file to write. Latents go beside it, to FILE's name with .latents.tsv.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_MODEL,
        help="Settings of the paper: faces, digits, brains2d or brains3d. Everything else that is "
        "set overrides them.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="TOML",
        rich_help_panel=_MODEL,
        help="Settings from a file, e.g. 'components = 20', which flags override. Keys are "
        f"{', '.join(KEYS)}.",
    ),
]
Components = Annotated[
    str | None,
    typer.Option(
        "--components",
        "-k",
        metavar="K",
        rich_help_panel=_MODEL,
        help="Number of latents; 'A,S' for appearance and shape with --latents separate. "
        "By default 16.",
    ),
]
Likelihood = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_MODEL,
        help=likelihood_help(),
    ),
]
Labels = Annotated[
    bool,
    typer.Option(
        "--labels",
        metavar="",
        rich_help_panel=_MODEL,
        help="Images are label maps: the same as --likelihood categorical.",
    ),
]
LatentLayout = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=_MODEL,
        help="What a latent controls: joint (shape and appearance, the default), separate "
        "(one of them), shape or appearance (the model has nothing else).",
    ),
]
ShapePenalty = Annotated[
    str | None,
    typer.Option(
        metavar="5 NUMBERS",
        rich_help_panel=_MODEL,
        help="Weights of size, stretching, bending, elasticity and divergence of velocities, "
        "e.g. 0.002,0.02,2,0.2,0.2.",
    ),
]
AppearancePenalty = Annotated[
    str | None,
    typer.Option(
        metavar="3 NUMBERS",
        rich_help_panel=_MODEL,
        help="Weights of size, stretching and bending of modes of appearance.",
    ),
]
MeanPenalty = Annotated[
    str | None,
    typer.Option(
        metavar="3 NUMBERS", rich_help_panel=_MODEL, help="The same for the mean, per image."
    ),
]
Balance = Annotated[
    str | None,
    typer.Option(
        metavar="2 NUMBERS",
        rich_help_panel=_MODEL,
        help="Weights of the penalties on modes, and on what they reconstruct.",
    ),
]
PriorDof = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        rich_help_panel=_MODEL,
        help="How many images the prior that latents are white counts for; by default K.",
    ),
]
Decimation = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        rich_help_panel=_MODEL,
        help="Weight of the likelihood, below 1 where neighbouring voxels say the same.",
    ),
]
VoxelSize = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS",
        rich_help_panel=_MODEL,
        help="Size of a voxel along each axis; by default that of the files, or 1.",
    ),
]
Iterations = Annotated[
    int | None,
    typer.Option(metavar="N", rich_help_panel=_FITTING, help="EM iterations; by default 20."),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        rich_help_panel=_FITTING,
        help="Stop when an iteration adds less than this share of the total rise so far.",
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        metavar="N", rich_help_panel=_FITTING, help="Steps of geodesic shooting; by default 8."
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        metavar="N", rich_help_panel=_FITTING, help="Of the starting latents; by default 0."
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        rich_help_panel=_FITTING,
        help="For batches of images, e.g. 4GB; by default 2GiB.",
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=_FITTING,
        help="Written after every iteration, gone on from where it exists, and removed at the "
        "end; by default beside the model, with .checkpoint.",
    ),
]
Pad = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        rich_help_panel=_IMAGES,
        help="Add a missing margin of N voxels, so that what leaves the image on one side does "
        "not come back on the other.",
    ),
]
ChannelAxis = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        rich_help_panel=_IMAGES,
        help="Where arrays and 4D NIfTI files hold channels or classes: -1 for the last axis.",
    ),
]

#: All that sets up a model, by name: what is typed, and what stands for nothing typed. In the
#: order in which help shows them.
SETTINGS: dict[str, tuple[Any, object]] = {
    "preset": (Preset, None),
    "config": (Config, None),
    "components": (Components, None),
    "likelihood": (Likelihood, None),
    "labels": (Labels, False),
    "latents": (LatentLayout, None),
    "shape_penalty": (ShapePenalty, None),
    "appearance_penalty": (AppearancePenalty, None),
    "mean_penalty": (MeanPenalty, None),
    "balance": (Balance, None),
    "prior_dof": (PriorDof, None),
    "decimation": (Decimation, None),
    "voxel_size": (VoxelSize, None),
    "iterations": (Iterations, None),
    "tol": (Tolerance, None),
    "steps": (Steps, None),
    "seed": (Seed, None),
    "threads": (options.Threads, None),
    "device": (options.Device, None),
    "memory": (Memory, None),
}
