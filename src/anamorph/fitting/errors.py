"""Errors of a fit: one line that says what happened and what to do."""


class FitError(ValueError):
    """A fit that cannot continue: its numbers have become NaN or infinite."""
