"""Readers of NIfTI files, pictures, arrays and label maps: each returns a `Source`."""
