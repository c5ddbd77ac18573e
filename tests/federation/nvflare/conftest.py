from __future__ import annotations

import pytest

from tests.federation.nvflare.hospitals import Hospitals

POLICY = """\
fits = 1000
iterations = 5000
secure_sum = false
minimum_images = 4
weighted_sums_per_image = 1e6
"""


@pytest.fixture(scope="package")
def hospitals(tmp_path_factory):
    """Three sites that have been started, and wait for a coordinator."""
    pytest.importorskip("nvflare")
    running = Hospitals(tmp_path_factory.mktemp("hospitals"), POLICY)
    try:
        running.start()
        yield running
    finally:
        running.stop()
