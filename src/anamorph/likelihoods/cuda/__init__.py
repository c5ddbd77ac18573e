"""The loops of the likelihoods for GPUs: one thread per voxel. Each module has its twin."""

import anamorph.kernels.cuda  # noqa: F401  which makes numba.cuda importable
