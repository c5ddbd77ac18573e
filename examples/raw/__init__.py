"""From raw scans to a model: intensities and grids as they come, and scans that stand out."""
