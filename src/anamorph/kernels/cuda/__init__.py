"""The loops of `kernels` for GPUs: one thread per voxel. Most modules have their twin there."""

import numpy as np

if not hasattr(np, "row_stack"):  # numba.cuda still expects it, and NumPy has dropped it
    vars(np)["row_stack"] = np.vstack
