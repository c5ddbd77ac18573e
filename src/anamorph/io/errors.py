"""What is wrong with an image or a file, in one line that says what to do about it."""


class ImageError(ValueError):
    """Images that no model can be fitted to, or that do not fit the model."""


class ModelFileError(ValueError):
    """A file that cannot be read as what it should be."""


class TableError(ValueError):
    """A table that cannot be read, or that does not go with the images."""


class WriteError(OSError):
    """A file that cannot be written; what was there before still is."""
