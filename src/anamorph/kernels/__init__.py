"""The hot loops: compiled with Numba, written once per voxel (or row of voxels)."""
