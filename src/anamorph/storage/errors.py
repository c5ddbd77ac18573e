"""What is wrong with a stored file, in one line that says what to do about it."""


class ModelFileError(ValueError):
    """A file that cannot be read as what it should be."""


class WriteError(OSError):
    """A file that cannot be written; what was there before still is."""
