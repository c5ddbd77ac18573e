"""Models and layouts compared on voxels that they have not seen."""
