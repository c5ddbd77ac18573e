"""Loops over voxels for processors: compiled by Numba, without the interpreter lock."""
