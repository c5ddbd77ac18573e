"""Errors about images and tables: one line that says what is wrong and what to do."""


class ImageError(ValueError):
    """Images that cannot be read, cannot be fitted, or do not match the model."""


class TableError(ValueError):
    """A table that cannot be read, or that does not match the images."""
