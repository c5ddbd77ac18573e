"""A coordinator that learns from refusals: none of them depends on the images."""

import numpy as np
import pytest

from anamorph.federation import VerificationError, simulated_sites, split_images
from anamorph.federation.site.fit import SiteFit
from anamorph.images.collection import open_images
from tests.federation.attacks.cheating import Meddling, log_of
from tests.federation.conftest import LENIENT, fit, sites, stack


@pytest.mark.parametrize("change", [-20, -5, -2, 2, 20])
@pytest.mark.parametrize("question", ["moments", "shape_derivatives", "update_latents"])
def test_ranges_are_not_the_coordinators_to_choose(tmp_path, monkeypatch, question, change):
    computed, answer = [], SiteFit.answer

    def tell(name, message):
        if message.get("question") == question:
            exponents = {field: e + change for field, e in message["exponents"].items()}
            return message | {"exponents": exponents}
        return None

    def watched(self, asked, limits):
        computed.append(asked.name)
        return answer(self, asked, limits)

    monkeypatch.setattr(SiteFit, "answer", watched)
    inner = sites(tmp_path)
    with pytest.raises(VerificationError, match="was announced"):
        fit(Meddling(inner, tell))
    assert question not in computed  # refused before anything about the images was computed
    assert log_of(inner, "site1", "stopped")


def test_refusals_say_the_same_whatever_the_images_are(tmp_path):
    """Sites of very different images, within one range, answer every tampered message alike."""
    images = stack()
    other = np.where(np.isnan(images), np.nan, images.max() * np.sign(images + 0.1))
    texts = []
    for number, data in enumerate((images, other)):
        collection = open_images(data, "gaussian")
        inner = simulated_sites(
            collection, split_images(13, 3), tmp_path / str(number), LENIENT, n_threads=1
        )

        def tell(name, message):
            if message.get("question") == "moments":
                exponents = {field: e - 3 for field, e in message["exponents"].items()}
                return message | {"exponents": exponents}
            return None

        with pytest.raises(VerificationError) as caught:
            fit(Meddling(inner, tell))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_values_beyond_their_bounds_are_no_error(tmp_path):
    # One image is 30 times as bright as the rest: it is scaled down, and nobody is told.
    images = stack()
    images[4] *= 30
    collection = open_images(images, "gaussian")
    inner = simulated_sites(collection, split_images(13, 3), tmp_path, LENIENT, n_threads=1)
    result, _ = fit(inner)
    assert np.isfinite(result.objective_).all()
    assert not any(log_of(inner, name, "refused") for name in inner.names)
