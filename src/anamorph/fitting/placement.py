"""Where the images of a cohort are worked on: in memory or on the GPU, and what is kept there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from anamorph.arrays.batches import GpuPlan, plan_gpu, plan_memory
from anamorph.arrays.column_sums import SumPlace
from anamorph.arrays.devices import Machine, chosen_device
from anamorph.arrays.gpu_images import ImagesOnDevice
from anamorph.arrays.typing import Float64Array, ReadableImages
from anamorph.fitting.cohort import Cohort
from anamorph.images.cache import KeptImages, can_be_kept
from anamorph.images.coarse import CoarseImages
from anamorph.images.files import FileImages
from anamorph.images.format import ImageFormat
from anamorph.model.generator import working_bytes
from anamorph.model.settings import Settings


def place_cohort(
    machine: Machine,
    images: ReadableImages,
    settings: Settings,
    identities: Sequence[int | str],
    start: Float64Array | None = None,
    scratch: Path | None = None,
) -> Cohort:
    """Return a cohort whose images are in memory, in their files, or on the GPU.

    Parameters
    ----------
    machine : Machine
        Its memory budget is for batches of images and what is kept of them.
    images, settings, identities, start
        As for `Cohort`. Images on a finer grid than that of the settings are averaged.
    scratch : Path, optional
        Folder for sums that are too large for memory; by default all are in memory.

    Returns
    -------
    Cohort
    """
    n_voxels, spread = len(images) * math.prod(settings.space), None
    if _grid_of(images) != settings.space:
        images = CoarseImages(images, settings.space, machine.budget)
        spread = images.spread if settings.likelihood.has_noise else None
    if chosen_device(machine.device, n_voxels) == "cpu":
        shape = (settings.n_channels, *settings.space)
        if isinstance(images, FileImages) and can_be_kept(len(images), shape, machine.budget):
            images = KeptImages(images, shape)
        place = SumPlace(np, scratch)
        _plan_fit_in_memory(settings, len(images), machine.budget, has_scratch=scratch is not None)
        return Cohort(images, settings, identities, machine.budget, start, place, spread)
    plan = plan_fit_on_gpu(settings, len(images), machine.memory_budget)
    on_device = ImagesOnDevice(images, plan.are_images_resident)
    place = SumPlace(on_device.namespace, scratch, plan.are_sums_resident)
    return Cohort(on_device, settings, identities, plan.working_bytes, start, place, spread)


def _grid_of(images: ReadableImages) -> tuple[int, ...]:
    """Return the shape of the grid of images; files know it without being read once more."""
    described: ImageFormat | None = getattr(images, "format", None)
    return images.read(slice(0, 1)).shape[2:] if described is None else described.space


def plan_fit_on_gpu(settings: Settings, n_images: int, budget: int | None = None) -> GpuPlan:
    """Plan how a fit uses the memory of the GPU, or raise a DeviceError if there is too little.

    Parameters
    ----------
    settings : Settings
    n_images : int
    budget : int, optional
        The most bytes to use; by default what is free.

    Returns
    -------
    GpuPlan
    """
    s, n_voxels = settings, math.prod(settings.space)
    parameter_bytes, sum_bytes = _bytes_of_model(settings)
    return plan_gpu(
        parameter_bytes,
        sum_bytes,
        stored_bytes=4 * n_images * n_voxels * s.n_channels,
        image_bytes=4 * n_voxels * (64 + 4 * s.n_channels * s.layout.n_latents),
        budget=budget,
    )


def _plan_fit_in_memory(
    settings: Settings, n_images: int, budget: int, *, has_scratch: bool
) -> None:
    """Raise a DeviceError if there is too little memory for a fit on the processor."""
    parameter_bytes, sum_bytes = _bytes_of_model(settings)
    image_bytes = working_bytes(settings)
    in_work = min(budget, n_images * image_bytes)
    plan_memory(parameter_bytes, 0 if has_scratch else sum_bytes, image_bytes, in_work)


def _bytes_of_model(settings: Settings) -> tuple[int, int]:
    """Return the bytes of mean and bases, and of the largest sums for all columns of a basis."""
    s, layout, n_voxels = settings, settings.layout, math.prod(settings.space)
    numbers = s.n_channels * (1 + layout.n_appearance) + s.n_dims * layout.n_shape
    sums = max(
        layout.n_shape * (s.n_dims + s.n_shape_hessian),
        layout.n_appearance * (s.n_channels + s.n_hessian),
    )
    return 4 * n_voxels * numbers, 8 * n_voxels * sums
