"""Sites of a federation that have a GPU, beside a fit on the processor of one machine."""

import numpy as np
import pytest

pytest.importorskip("cryptography", exc_type=ImportError)

from anamorph.federation import simulated_sites, split_images
from anamorph.images.collection import open_images
from tests.device.test_fits import blobs
from tests.federation.conftest import LENIENT, fit, model


def test_a_fit_across_gpus_has_the_numbers_of_one_machine(gpu, tmp_path, monkeypatch):
    monkeypatch.setattr("anamorph.model.generator._MOST_GUESSES", 3)  # each takes a simulation long
    small = {"n_components": 1, "n_iter": 1, "n_steps": 3}
    images = open_images(blobs(6), "gaussian")
    transport = simulated_sites(images, split_images(6, 3), tmp_path, LENIENT, device="cuda")
    there, _ = fit(transport, **small)
    here = model(**small).fit(blobs(6))
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-4)
    assert np.allclose(there.mean_, here.mean_, atol=1e-3)
