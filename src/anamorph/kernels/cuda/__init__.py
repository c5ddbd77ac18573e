"""The loops of `kernels` for GPUs: one thread per voxel. Each module has its twin there."""
