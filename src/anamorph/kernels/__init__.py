"""Compiled loops over voxels: `formulas` are written once, `cpu` and `cuda` hold the loops."""
