"""What is wrong with a cluster, in one line that says what to do about it."""


class ClusterError(RuntimeError):
    """A cluster on which a fit cannot begin, or cannot go on."""
