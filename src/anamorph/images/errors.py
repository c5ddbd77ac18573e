"""What is wrong with images, in one line that says what to do about it."""


class ImageError(ValueError):
    """Images that no model can be fitted to, or that do not fit the model."""


class TableError(ValueError):
    """A table that cannot be read, or that does not go with the images."""
