"""Workers of a cluster that have a GPU: partitions of images on it, beside a fit on one machine."""

import sys

import numpy as np
import pytest

pytest.importorskip("distributed")

from anamorph import ShapeAppearanceModel
from anamorph.arrays.devices import Machine
from anamorph.cluster.connection import ClusterError
from anamorph.cluster.partition import Partition, inspect
from tests.cluster import conftest
from tests.cluster.test_partition import fitted
from tests.device.test_fits import blobs

OPTIONS = conftest.OPTIONS | {"n_components": 1, "n_iter": 1, "n_steps": 3}


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{number}.npy" for number in range(4)]
    for path, image in zip(paths, blobs(4), strict=True):
        np.save(path, image)
    return paths


def test_partitions_on_gpus_give_what_one_machine_gives(gpu, files, tmp_path, monkeypatch):
    monkeypatch.setattr("anamorph.model.generator._MOST_GUESSES", 3)  # each takes a simulation long
    here = ShapeAppearanceModel(**OPTIONS).fit(files)
    there, sites = fitted(
        files,
        tmp_path / "shared",
        lambda question: question in ("shape_derivatives", "update_latents"),
        n_partitions=2,
        **OPTIONS,
        device="cuda",
    )
    assert there.objective_ == pytest.approx(here.objective_, rel=1e-6)
    assert np.allclose(there.latents_, here.latents_, atol=1e-4)
    assert isinstance(sites.latents, np.ndarray)


def test_a_worker_without_a_gpu_is_named(files, monkeypatch):
    monkeypatch.setattr("anamorph.cluster.partition._check_worker", lambda partition: None)
    monkeypatch.setattr("anamorph.cluster.partition._name", lambda: "tcp://node17:1234")
    monkeypatch.setitem(sys.modules, "cupy", None)
    partition = Partition(0, {}, (), None, None, Machine("cuda", 1), has_start=False)
    with pytest.raises(ClusterError, match=r"on worker tcp://node17:1234: .*needs CuPy") as it:
        inspect(partition)
    assert "\n" not in str(it.value)
