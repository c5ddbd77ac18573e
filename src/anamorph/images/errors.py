"""Errors about images and tables: one line that says what is wrong and what to do."""

_LONGEST_REASON = 120


class ImageError(ValueError):
    """Images that cannot be read, cannot be fitted, or do not match the model."""


class TableError(ValueError):
    """A table that cannot be read, or that does not match the images."""


def short_reason(error: BaseException) -> str:
    """Return the text of an exception as one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}..."
