"""``anamorph site start``: lend the images of a site to a federation, under its own policy."""

from __future__ import annotations

import io
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError, require_nvflare
from anamorph.cli.terminal.images import ImageArguments, columns_of
from anamorph.cli.terminal.messages import Messages, counted, talking
from anamorph.cli.terminal.settings import chosen_likelihood, parse_memory
from anamorph.model.hyperparameters import HYPERPARAMETERS, checked_arguments

if TYPE_CHECKING:
    from anamorph.federation.nvflare.kit import Kit
    from anamorph.federation.nvflare.site_data import SiteData

EXAMPLES = """[bold]Examples[/bold]
anamorph site start kit --data scans/ --policy policy.toml
anamorph site start kit --data 'labels/*.nii.gz' --labels --policy policy.toml"""


def start(
    kit: Annotated[
        Path, typer.Argument(metavar="KIT", show_default=False, help="Folder of the site's kit.")
    ],
    data: Annotated[
        list[str],
        typer.Option(
            "--data",
            metavar="IMAGES",
            help="A file, a folder or a quoted pattern; more than once for more. They stay here.",
        ),
    ],
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="TOML",
            help="What others may ask, e.g. 'minimum_images = 20'; by default a careful one.",
        ),
    ] = None,
    likelihood: options.Likelihood = None,
    labels: options.Labels = False,
    classes: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            rich_help_panel="Model",
            help="Of label maps, the same at all sites; by default one more than the largest "
            "label here.",
        ),
    ] = None,
    tissues: options.Tissues = False,
    participants: options.ParticipantsTable = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Column of --participants that analyses may group or weight images by; more than "
            "once for more. By default none.",
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            metavar=HYPERPARAMETERS["scale"].typed,
            rich_help_panel=options.IMAGES,
            help=f"{HYPERPARAMETERS['scale'].help}; the same at all sites. By default "
            f"{HYPERPARAMETERS['scale'].none_means}.",
        ),
    ] = None,
    resample: options.Resample = False,
    pad: options.PadOfSite = 0,
    channel_axis: options.ChannelAxis = None,
    cache: options.CacheFolder = None,
    threads: options.Threads = None,
    device: options.Device = None,
    memory: options.Memory = None,
    quiet: options.Quiet = False,
) -> None:
    """Lend images to a federation: sums over them leave this computer, they do not.

    Connects to the coordinator, and waits for it where it is not there yet.
    Ctrl-C stops it; started again, the site continues where it was.
    """
    require_nvflare()
    from anamorph.federation.nvflare.kit import open_kit
    from anamorph.federation.nvflare.processes import run_site
    from anamorph.federation.nvflare.site_data import SiteData
    from anamorph.images.intensity import checked_scale
    from anamorph.likelihoods import DEFAULT

    with talking("site start", quiet, False) as messages:
        if scale == "match":
            raise CommandError(
                "--scale must not be match at a site: quantiles would be those of this site alone; "
                "use robust or zscore"
            )
        opened = open_kit(kit, as_site=True)
        _tell_of_strangers(opened, messages)
        given = ImageArguments(data, tissues, participants, resample, cache)
        kind = chosen_likelihood(likelihood, labels, tissues) or DEFAULT
        found = given.find()
        lent = SiteData(
            files=[[str(path.resolve()) for path in group] for group in found.files],
            likelihood=kind,
            channel_axis=channel_axis,
            n_classes=classes,
            resample=bool(resample),
            pad=pad,
            cache=None if cache is None else str(cache.resolve()),
            policy=None if policy is None else str(policy.resolve()),
            memory_budget=None if memory is None else parse_memory("--memory", memory),
            n_threads=threads,
            device=device or "cpu",
            scale=checked_scale(scale),
            columns=columns_of(found, participants, column or [], "--column names columns"),
        )
        _check(lent, opened.name, messages)
        lent.write(opened)
        messages.say(
            f"{opened.name} of {opened.consortium}: connecting to {opened.host}:{opened.port}; "
            "Ctrl-C stops"
        )
        with redirect_stdout(io.StringIO()) if quiet else nullcontext():
            run_site(opened)


def _tell_of_strangers(kit: Kit, messages: Messages) -> None:
    """Say which members are not trusted here: fits with them would be refused."""
    from anamorph.federation.nvflare.accepted import check_own_certificate, standings

    check_own_certificate(kit)
    for entry in standings(kit):
        if entry.problem is not None:
            messages.say(f"warning: {entry.problem}")


def _check(lent: SiteData, name: str, messages: Messages) -> None:
    """Find out now what a coordinator would otherwise find out later."""
    from anamorph.arrays.devices import find_gpu
    from anamorph.federation.protocol.errors import PolicyError
    from anamorph.images.facts import remark_on_brightness

    checked_arguments({"likelihood": lent.likelihood, "device": lent.device})
    if lent.device == "cuda":
        find_gpu()
    images = lent.open_images()
    images.check(for_fit=True)
    if remark := remark_on_brightness(images.typical):
        messages.say(f"warning: {remark}")
    try:
        policy = lent.read_policy()
        policy.check_images(len(images), name)
    except PolicyError as error:
        raise CommandError(str(error)) from None
    hidden = "masked sums only" if policy.secure_sum else "sums also without masks"
    messages.say(
        f"{name} lends {counted(len(images), 'image')}: {hidden}, of at least "
        f"{counted(policy.minimum_images, 'image')}"
    )
