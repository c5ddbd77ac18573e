"""MNIST: fetched through scikit-learn, in the original order."""

from urllib.error import URLError

import numpy as np
import pytest
from sklearn.utils import Bunch

from anamorph.datasets import mnist


def test_images_and_labels_in_their_order(monkeypatch, tmp_path):
    asked = {}
    pixels = np.zeros((70000, 784))
    pixels[:, 29] = np.arange(70000) % 256  # row 1, column 1

    def fetch(name, **options):
        asked.update(options, name=name)
        return Bunch(data=pixels, target=(np.arange(70000) % 10).astype(str))

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    found = mnist(tmp_path)
    assert asked["name"] == "mnist_784"
    assert asked["data_home"] == tmp_path
    assert found.train_images.shape == (60000, 28, 28)
    assert found.test_images.shape == (10000, 28, 28)
    assert found.train_images.dtype == found.train_labels.dtype == np.uint8
    assert found.train_images[300, 1, 1] == 300 % 256
    assert found.test_images[7, 1, 1] == 60007 % 256
    assert found.test_images[7].sum() == 60007 % 256
    assert found.train_labels[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert found.test_labels[3] == 3


@pytest.mark.parametrize("error", [URLError("no route to host"), TimeoutError("timed out")])
def test_no_network_is_said_in_one_line(monkeypatch, error):
    def fetch(*_, **__):
        raise error

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    with pytest.raises(
        ConnectionError, match=r"could not be fetched from OpenML: .*digits\(\)"
    ) as e:
        mnist()
    assert "\n" not in str(e.value)
