"""The loops of the likelihoods for GPUs: one thread per voxel. Each module has its twin."""
