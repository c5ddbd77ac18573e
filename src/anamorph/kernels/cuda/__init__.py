"""Loops over voxels for GPUs: one thread per voxel, with the formulas of processors.

A module has the name of its counterpart in `kernels.cpu`, and functions of the same name take the
same arguments, unless they say otherwise.
"""

import numpy as np

if not hasattr(np, "row_stack"):  # numba.cuda still expects it, and NumPy has dropped it
    vars(np)["row_stack"] = np.vstack
