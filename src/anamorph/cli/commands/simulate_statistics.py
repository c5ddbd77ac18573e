"""``anamorph federation simulate-statistics``: statistics across sites on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli.commands.simulate import (
    InTheOpen,
    NumberOfSites,
    PolicyFile,
    StatisticsTable,
    policy_of,
)
from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.images import ImageArguments, columns_of
from anamorph.cli.terminal.messages import Messages, counted, talking
from anamorph.cli.terminal.models import load_model
from anamorph.cli.terminal.places import reserve

if TYPE_CHECKING:
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.federation.protocol.privacy import PrivacyTerms

EXAMPLES = """[bold]Examples[/bold]
anamorph federation simulate-statistics shared.safetensors scans/ --sites 3 -o latents.tsv
anamorph federation simulate-statistics shared.safetensors scans/ --sites 3 -o latents.tsv --participants participants.tsv --group-by diagnosis"""  # noqa: E501

Epsilon = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="Privacy loss of differentially private statistics: 1 is strong. Sites add noise.",
    ),
]
Delta = Annotated[
    float,
    typer.Option(
        metavar="NUMBER", help="With --epsilon: probability with which the loss may be larger."
    ),
]
Clip = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        help="With --epsilon: largest norm of the latents of an image. Longer ones are shortened.",
    ),
]


def simulate_statistics(
    model_file: options.ModelFile,
    images: options.Images,
    output: StatisticsTable,
    sites: NumberOfSites = 3,
    participants: options.ParticipantsTable = None,
    group_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of --participants that holds groups."),
    ] = None,
    weight_by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of --participants that holds weights."),
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = 1e-5,
    clip: Clip = None,
    policy: PolicyFile = None,
    in_the_open: InTheOpen = False,
    threads: options.Threads = None,
    tissues: options.Tissues = False,
    resample: options.Resample = False,
    cache: options.CacheFolder = None,
    force: options.Force = False,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Compute statistics of latents across sites that all run on this machine.

    The sites are as in 'anamorph federation simulate', and the table as in
    'anamorph federation statistics', for all groups in the column. What differs
    between sites is part of what differs between groups.
    """
    from anamorph.federation.coordinator import statistics as across_sites
    from anamorph.federation.simulate import simulated_sites, split_images
    from anamorph.federation.site.analysis import lend_model

    with talking("simulate-statistics", quiet, as_json) as messages:
        model = load_model(model_file, threads)
        private = terms_of(model, epsilon, delta, clip)
        given = ImageArguments(images, tissues, participants, resample, cache)
        found = given.find()
        reserve([output], [model_file, *given.inputs(found), policy], force=force)
        asked = [name for name in (group_by, weight_by) if name is not None]
        columns = columns_of(found, participants, asked, "--group-by and --weight-by name columns")
        groups = ["all"] if group_by is None else sorted(set(columns[group_by]))
        files = given.open_for(model, found)
        with (
            tempfile.TemporaryDirectory() as folder,
            messages.waiting(f"Encoding {counted(len(found), 'image')}"),
        ):
            parts, rules = split_images(len(files), sites), policy_of(policy, in_the_open)
            transport = simulated_sites(
                files, parts, Path(folder), rules, columns=columns, n_threads=threads
            )
            for name in transport.names:  # as if they had fitted it
                fits = Path(folder) / name / "fits"
                lend_model(fits, model.settings_, model.generator_.parameters)
            statistics = across_sites.federated_statistics(
                model,
                transport,
                transport.names,
                groups,
                group_by=group_by,
                weight_by=weight_by,
                is_secure=not in_the_open,
                privacy=private,
            )
        across_sites.write_statistics(output, statistics)
        tell_privacy(private, messages)
        messages.wrote(output)
        messages.result(groups=across_sites.summarised(statistics))


def terms_of(
    model: ShapeAppearanceModel, epsilon: float | None, delta: float, clip: float | None
) -> PrivacyTerms | None:
    """Return the terms of private statistics; None: exact ones are asked for."""
    from anamorph.federation.coordinator.statistics import privacy_terms

    if epsilon is None:
        if clip is not None:
            raise CommandError("--clip bounds latents of private statistics: give --epsilon too")
        return None
    return privacy_terms(model, epsilon, delta, clip)


def tell_privacy(terms: PrivacyTerms | None, messages: Messages) -> None:
    """Say what was promised, and that it holds for these statistics alone."""
    if terms is not None:
        messages.say(
            f"Differentially private: epsilon {terms.epsilon:g}, delta {terms.delta:g}, latents "
            f"clipped to {terms.clip:.3g}. The model itself is not: it was fitted to exact sums"
        )
