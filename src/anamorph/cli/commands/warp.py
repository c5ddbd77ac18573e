"""``anamorph warp``: images, label maps, landmarks and meshes in the template, and back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anamorph.cli.terminal import options
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.images import OptionalImageArguments, find_files
from anamorph.cli.terminal.messages import Messages, counted
from anamorph.cli.terminal.models import (
    LatentSource,
    ModelArguments,
    check_poses,
    latent_source,
    output_of,
    write_images,
)
from anamorph.cli.terminal.places import paths_in

if TYPE_CHECKING:
    from anamorph.arrays.typing import Array
    from anamorph.estimator import ShapeAppearanceModel
    from anamorph.images.collection import ImageCollection
    from anamorph.storage.outputs import ImageOutput

EXAMPLES = """[bold]Examples[/bold]
anamorph warp model.safetensors scans/ -o aligned/
anamorph warp model.safetensors --latents latents.tsv --apply 'labels/*.nii.gz' --labels -o out/
anamorph warp model.safetensors --latents latents.tsv --apply 'marks/*.csv' -o marks-in-template/
anamorph warp model.safetensors scans/ --from-template --apply atlas.nii.gz --labels -o atlas/"""

_MOST_NAMED = 3  # files
_ENDINGS = {True: "_from-template", False: "_template"}


@options.command()
def warp(
    *,
    output: options.OutputFolder,
    latents: options.Latents = None,
    residual: options.Residual = False,
    apply: Annotated[
        str | None,
        typer.Option(
            "--apply",
            metavar="FILES",
            help="Warp these instead of the images themselves: a folder or quoted pattern with one "
            "file for each image, of the same name, or else in their order. Images on any grid, "
            "landmarks (.csv with x, y and z in mm), or meshes (.gii, .vtk, .ply).",
        ),
    ] = None,
    labels: Annotated[
        bool,
        typer.Option("--labels", metavar="", help="What --apply names are label maps."),
    ] = False,
    from_template: Annotated[
        bool,
        typer.Option(
            "--from-template",
            metavar="",
            help="Warp what --apply names from the template to each image: one file for all, or "
            "one for each.",
        ),
    ] = False,
    nearest: Annotated[
        bool,
        typer.Option(
            "--nearest",
            metavar="",
            help="Take the value of the nearest voxel; by default interpolate linearly, and of "
            "label maps take the most probable label.",
        ),
    ] = False,
    modulate: Annotated[
        bool,
        typer.Option(
            "--modulate",
            metavar="",
            help="Keep amounts, as of tissue: multiply by the change of volume. Of labels only "
            "with --probabilities.",
        ),
    ] = False,
    fwhm: Annotated[
        float,
        typer.Option(
            metavar="MM", min=0, help="Smooth with a Gaussian of this width at half its height."
        ),
    ] = 0.0,
    probabilities: options.Probabilities = False,
    on_input_grid: options.OnInputGrid = False,
    model_arguments: ModelArguments,
    given: OptionalImageArguments,
    messages: Messages,
) -> None:
    """Bring images into the space of the template, or things of the template to images.

    The latents of the images are found first, or come from a table. Each result
    goes to a file of the name of its image and _template (or _from-template).
    """
    from anamorph.storage.meshes import MESH_SUFFIXES

    if apply is None and (from_template or labels):
        raise CommandError("--from-template and --labels are about the files of --apply: name them")
    if from_template and (modulate or fwhm):
        raise CommandError("--modulate and --fwhm are for the way to the template")
    if nearest and modulate:
        raise CommandError("--modulate spreads each voxel over several: leave --nearest out")
    if on_input_grid and not from_template:
        raise CommandError("--on-input-grid is for the way from the template")
    model = model_arguments.load()
    holds_labels = labels or (apply is None and model.settings_.likelihood.holds_classes)
    if modulate and holds_labels and not probabilities:
        raise CommandError(
            "--modulate keeps amounts, which labels do not have: leave it out, or give "
            "--probabilities for the amount of each label"
        )
    source = latent_source(model, given, latents, messages, residual=residual)
    applied = [] if apply is None else _found(apply, source.names, from_template)
    applied = _matched(applied, source.names, apply, messages)
    ending = _ENDINGS[from_template]
    if applied and applied[0].suffix.lower() in MESH_SUFFIXES:
        paths = paths_in(output, source.names, ending + applied[0].suffix.lower())
        model_arguments.reserve(paths, [*source.inputs, *applied])
        _warp_meshes(model, source, applied, paths, from_template)
        messages.wrote(*paths)
        return
    if apply is None and latents is not None:
        raise CommandError("a table of latents has no images: give images, or --apply with files")
    if applied and not (labels or nearest):
        _remark_on_labels(applied[0], messages)
    written, read = _opened(model, given, source, applied, labels, probabilities)
    paths = paths_in(output, source.names, ending + written.suffix)
    model_arguments.reserve(paths, [*source.inputs, *applied])
    grids = source.input_grids(model) if on_input_grid else None
    codes = source.encode(range(len(paths)))
    check_poses(model, codes.poses)
    space, interpolation = model.template_space_, "nearest" if nearest else "linear"

    def make(part: slice) -> Array:
        some = codes.take(part)
        if from_template:
            return space.images_from(
                *(read(part), some.latents),
                interpolation=interpolation,
                poses=some.poses,
                residuals=some.residuals,
            )
        return space.images_to(
            *(read(part), some.latents),
            interpolation=interpolation,
            modulate=modulate,
            fwhm=fwhm,
            poses=some.poses,
            residuals=some.residuals,
        )

    with messages.counting(f"Warping {counted(len(paths), 'image')}"):
        write_images(model, written, paths, make, grids)
    messages.wrote(*paths)


def _found(apply: str, names: list[str], from_template: bool) -> list[Path]:
    """Return the files of --apply: one for each image, or one for all."""
    applied = find_files([apply])
    missing = [path for path in applied if not path.exists()]
    if missing:
        raise CommandError(f"--apply {missing[0]} does not exist: check its name")
    if len(applied) != len(names) and not (from_template and len(applied) == 1):
        raise CommandError(
            f"--apply {apply} names {counted(len(applied), 'file')}, and there are "
            f"{counted(len(names), 'image')}: one file is needed for each"
        )
    return applied


def _matched(
    applied: list[Path], names: list[str], apply: str | None, messages: Messages
) -> list[Path]:
    """Return files in the order of images: by their names, or as they are if names are others."""
    from anamorph.images.readers import stem_of
    from anamorph.storage.meshes import MESH_SUFFIXES

    by_name = {
        path.stem if path.suffix.lower() in MESH_SUFFIXES else stem_of(path): path
        for path in applied
    }
    if len(applied) <= 1:
        return applied
    if not by_name.keys() & set(names):
        pairs = [f"{path.name} for {name}" for path, name in zip(applied, names, strict=True)]
        more = ", ..." if len(pairs) > _MOST_NAMED else ""
        messages.say(
            f"no file of --apply {apply} has the name of an image: they are taken in their order "
            f"({', '.join(pairs[:_MOST_NAMED])}{more})"
        )
        return applied
    for name in names:
        if name not in by_name:
            raise CommandError(
                f"--apply has files of the names of some images, but none for {name}: add it, or "
                "rename the others"
            )
    return [by_name[name] for name in names]


def _remark_on_labels(path: Path, messages: Messages) -> None:
    """Say so if an image to be interpolated looks like a label map, by the rules of a fit.

    The first file speaks for all: they are of one kind, and each takes time to read.
    """
    import numpy as np

    from anamorph.images.facts import facts_of
    from anamorph.images.integers import FEW, HeldIntegers
    from anamorph.images.readers import open_image

    source = open_image(path, None, as_labels=False)
    voxels = source.load()
    if source.integers is None:
        look_like_labels = bool(facts_of(voxels).labels)
    else:
        held = HeldIntegers(source.integers)
        held.add(voxels)
        look_like_labels = held.look_like_labels
    if not look_like_labels:
        return
    values = np.unique(voxels[~np.isnan(voxels)]).astype(int).tolist()
    found = f"only the integers {', '.join(map(str, values))}"
    if len(values) > FEW:
        found = f"{len(values)} different integers up to {values[-1]}"
    messages.say(
        f"{path} holds {found}, which look like labels and will be interpolated to fractions: if "
        "they are labels, --labels keeps them whole"
    )


def _warp_meshes(
    model: ShapeAppearanceModel,
    source: LatentSource,
    applied: list[Path],
    paths: list[Path],
    from_template: bool,
) -> None:
    from anamorph.storage.meshes import read_mesh, write_mesh

    meshes = [read_mesh(path) for path in applied]
    meshes = meshes * len(paths) if len(meshes) == 1 else meshes
    codes = source.encode(range(len(paths)))
    check_poses(model, codes.poses)
    move = model.from_template if from_template else model.to_template
    for n, (path, mesh) in enumerate(zip(paths, meshes, strict=True)):
        one = codes.take(slice(n, n + 1))
        (moved,) = move(mesh, one.latents, poses=one.poses, residuals=one.residuals)
        write_mesh(path, moved)


def _opened(
    model: ShapeAppearanceModel,
    given: OptionalImageArguments,
    source: LatentSource,
    applied: list[Path],
    labels: bool,
    probabilities: bool,
) -> tuple[ImageOutput, Callable[[slice], ImageCollection]]:
    """Return how results are written, and what opens some of the images."""
    from anamorph.estimator.template_space import INTENSITIES, LABELS
    from anamorph.storage.outputs import ImageOutput

    if not applied:
        found = given.find()

        def read_own(part: slice) -> ImageCollection:
            return given.open_for(model, found.take(range(len(found))[part]))

        return output_of(model, probabilities), read_own
    images = model.template_space_.open(applied, LABELS if labels else INTENSITIES)

    def read_applied(part: slice) -> ImageCollection:
        return images if len(images) == 1 else images.subset(range(len(images))[part])

    is_probable = probabilities and labels
    return ImageOutput(images.format, model.origin_, False, is_probable), read_applied
