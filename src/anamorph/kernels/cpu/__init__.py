"""Loops over voxels for processors: vectors of neighbouring voxels, shared out by `threads`."""
