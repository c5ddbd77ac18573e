from __future__ import annotations

import pytest

from tests.federation.nvflare.hospitals import Hospitals

POLICY = "fits = 1000\niterations = 5000\nsecure_sum = false\nminimum_images = 4\nweighted_sums_per_image = 1e6\n"


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
