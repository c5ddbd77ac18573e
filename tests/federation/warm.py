"""Imported by the process that sites are forked from: kernels are loaded once, for all of them."""

import tempfile
from pathlib import Path

from anamorph.kernels.threads import use_threads
from tests.federation.conftest import fit, sites

# No threads are started: a fork would have their pool, and none of them.
with tempfile.TemporaryDirectory() as folder, use_threads(1):
    fit(sites(Path(folder)), n_iter=2)
