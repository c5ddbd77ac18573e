"""Readers: NIfTI, pictures, arrays and label maps."""
