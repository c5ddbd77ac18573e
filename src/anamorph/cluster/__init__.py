"""The same fit on the workers of a Dask cluster that share a file system.

Images are split into partitions. A question of a fit becomes one task for each of them; parameters
go from worker to worker, and answers are added pairwise where they are.

A task leaves the latents of its partition in a shared folder, under the number of the step: a task
that is repeated, by whichever worker, does the same again. All else that workers keep (opened
images, warps, proposals) saves time, and may be lost with them at any moment.
"""

from anamorph.cluster.connection import ClusterError, connect
from anamorph.cluster.fit import fit_on_cluster
from anamorph.cluster.sites import ClusterSites

__all__ = ["ClusterError", "ClusterSites", "connect", "fit_on_cluster"]
