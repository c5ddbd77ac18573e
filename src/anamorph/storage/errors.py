"""Errors about stored files: one line that says what is wrong and what to do."""


class ModelFileError(ValueError):
    """A model file or checkpoint that cannot be read, or does not belong to this fit."""


class WriteError(OSError):
    """A file that cannot be written; the file that was there before is unchanged."""
