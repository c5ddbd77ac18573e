"""``anamorph federation simulate``: a fit across sites, all of them on this machine."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.images import ImageArguments
from anamorph.cli.terminal.messages import Messages, counted, talking
from anamorph.cli.terminal.places import check_checkpoint, path_beside, reserve
from anamorph.cli.terminal.settings import ModelSettings, command_with_settings

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.federation.coordinator.fit import FederatedResult
    from anamorph.federation.site.policy import Policy

EXAMPLES = """[bold]Examples[/bold]
anamorph federation simulate --sites 3 scans/ -o shared.safetensors -k 16
anamorph federation simulate --sites 5 scans/ -o shared.safetensors --policy policy.toml"""

NumberOfSites = Annotated[
    int, typer.Option("--sites", min=1, metavar="N", help="Number of sites to share the images.")
]
PolicyFile = Annotated[
    Path | None,
    typer.Option(metavar="TOML", help="Policy of all sites, e.g. 'minimum_images = 20'."),
]
StatisticsTable = Annotated[
    Path, typer.Option("--output", "-o", metavar="TSV", help="Table of statistics to write.")
]
InTheOpen = Annotated[
    bool,
    typer.Option(
        "--in-the-open",
        metavar="",
        help="Do not mask sums (fewer than three sites cannot); the policy must allow it.",
    ),
]


@command_with_settings(
    *("preset", "config", "n_components", "likelihood", "labels", "latents", "align", "intensity"),
    *("n_iter", "random_state", "n_threads"),
)
def simulate(
    images: options.Images,
    output: options.ModelOutput,
    *,
    sites: NumberOfSites = 3,
    policy: PolicyFile = None,
    in_the_open: InTheOpen = False,
    settings: ModelSettings,
    tissues: options.Tissues = False,
    participants: options.ParticipantsTable = None,
    resample: options.Resample = False,
    pad: options.Pad = None,
    cache: options.CacheFolder = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Fit a model across sites that are all on this machine, to see how it goes.

    The images are dealt out to the sites in turn. It is the same code as
    between hospitals, without a network: same policy, masks and audit logs.
    """
    from anamorph.cli.terminal.messages import FitDisplay
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.federation.coordinator.fit import Terms, check_levels, federated_fit
    from anamorph.federation.simulate import simulated_sites, split_images
    from anamorph.images.facts import remark_on_brightness
    from anamorph.model.settings import checked_settings

    with talking("simulate", quiet, as_json) as messages:
        arguments = settings.merged(tissues)
        given = ImageArguments(images, tissues, participants, resample, cache)
        found = given.find_several()
        inputs = [*given.inputs(found), settings.config, policy]
        reserve([output], inputs, force=force)
        checkpoint, folder = path_beside(output, ".checkpoint"), path_beside(output, ".sites")
        check_checkpoint(checkpoint, [output, *inputs])
        if not checkpoint.exists():
            _clear(folder, force)
        rules = policy_of(policy, in_the_open)
        with FitDisplay(messages) as display:
            display.stage(f"Reading {len(found)} images")
            model = ShapeAppearanceModel(**arguments)
            files = given.open_to_fit(model, found, pad)
            # Before sites make their folders, which the next run would not replace.
            checked_settings(
                model.get_params(deep=False), files.format, len(files), files.voxel_size
            )
            check_levels(model)
            files.check(for_fit=True)
            if remark := remark_on_brightness(files.typical):
                messages.say(f"warning: {remark}")
            if sites > len(files):
                raise CommandError(f"--sites must be at most the number of images, {len(files)}")
            parts, threads = split_images(len(files), sites), settings.flags["n_threads"]
            transport = simulated_sites(files, parts, folder, rules, n_threads=threads)
            display.stage("Starting (where kernels are not compiled yet, this takes a minute)")
            result = federated_fit(
                model,
                transport,
                transport.names,
                Terms(is_secure=not in_the_open, patience=0.0),
                checkpoint=checkpoint,
                callback=display.advance,
            )
        model.save(output)
        checkpoint.unlink(missing_ok=True)
        _tell(model, result, output, folder, messages)


def policy_of(path: Path | None, in_the_open: bool) -> Policy:
    """Return the policy in a file, or the default one, with masks unless all is in the open."""
    from anamorph.federation.site.policy import Policy

    if path is not None:
        return Policy.read(path)
    return replace(Policy(), secure_sum=not in_the_open)


def _clear(folder: Path, force: bool) -> None:
    """Remove what sites of an earlier simulation kept: they would take it for another fit."""
    if not folder.exists():
        return
    if not force:
        raise CommandError(f"{folder} exists already: use --force to replace it")
    for name in folder.glob("site*/audit.jsonl"):
        shutil.rmtree(name.parent)


def _tell(
    model: ShapeAppearanceModel,
    result: FederatedResult,
    output: Path,
    folder: Path,
    messages: Messages,
) -> None:
    objective = model.objective_[-1] if model.objective_ else None
    messages.say(
        f"Fitted {model.origin_.n_images} images of {counted(len(result.roster), 'site')} in "
        f"{counted(model.n_iter_, 'iteration')}, {counted(result.n_questions, 'question')}"
        + ("" if objective is None else f", objective {objective:.8g}")
    )
    for note in result.notes:
        messages.say(note)
    messages.wrote(output)
    messages.say(f"What left each site: anamorph site audit {folder / result.roster[0]}")
    messages.result(
        model=str(output),
        sites=list(result.roster),
        notes=list(result.notes),
        n_images=model.origin_.n_images,
        n_iterations=model.n_iter_,
        n_questions=result.n_questions,
        objective=objective,
    )
