"""A model fitted on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from distributed import Client
from numpy.typing import ArrayLike

from anamorph.arrays.typing import Float64Array
from anamorph.cluster.sites import ClusterSites
from anamorph.estimator import ShapeAppearanceModel
from anamorph.fitting.run import Progress
from anamorph.images.collection import ImageCollection
from anamorph.model.checks import ArgumentError
from anamorph.model.settings import Settings


def fit_on_cluster(
    model: ShapeAppearanceModel,
    images: Sequence[Any] | ImageCollection,
    client: Client,
    folder: str | os.PathLike[str],
    *,
    n_partitions: int | None = None,
    start: ArrayLike | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    callback: Callable[[Progress], object] | None = None,
) -> ShapeAppearanceModel:
    """Fit a model to image files, by the workers of a Dask cluster.

    Parameters
    ----------
    model : ShapeAppearanceModel
        Its `n_threads`, `memory_budget` and `device` are those of each task; by default one
        thread, since a worker does as many tasks at once as it has threads.
    images : list of paths, or FileImages
        Which workers see under the same paths.
    client : distributed.Client
    folder : path
        Made if need be, and seen under the same path by all workers: latents are kept in it while
        the fit runs.
    n_partitions : int, optional
        Into how many tasks a question is split; by default as many as the workers have threads.
    start : array of shape (N, K), optional
        Latents to start from, instead of random ones.
    checkpoint : path, optional
        Written by this process after every iteration, and resumed from if it exists.
    callback : callable, optional
        Called with the `Progress` after every iteration.

    Returns
    -------
    ShapeAppearanceModel
        The model, fitted.
    """
    with ExitStack() as stack:

        def open_sites(
            opened: ImageCollection, settings: Settings, starting: Float64Array | None
        ) -> ClusterSites:
            if settings.has_residuals:
                raise ArgumentError(
                    f"residual must be 'none' on a cluster, got {settings.residual!r}: residual "
                    "warps are learnt on one machine, such as one with a GPU"
                )
            return stack.enter_context(
                ClusterSites(
                    client,
                    opened,
                    settings,
                    starting,
                    folder=folder,
                    n_partitions=n_partitions,
                    memory_budget=model.memory_budget,
                    n_threads=model.n_threads,
                    device=model.device,
                )
            )

        return model.fit_at(
            open_sites, images, start=start, checkpoint=checkpoint, callback=callback
        )
