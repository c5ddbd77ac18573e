"""Fits on a cluster of real processes: the same numbers as on one machine, and clear errors."""

from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.cluster import ClusterError, ClusterSites, connect, fit_on_cluster
from anamorph.cluster import sites as sites_module
from anamorph.cluster.connection import check_versions
from anamorph.cluster.partition import Partition
from anamorph.images.errors import ImageError
from anamorph.images.files import FileImages
from tests.cluster.conftest import N_IMAGES, OPTIONS, Processes


def one_line(error):
    """Return what an error says, which must be one line."""
    text = str(error.value)
    assert "\n" not in text
    return text


def test_a_cluster_fits_what_one_machine_fits(client, files, tmp_path):
    start = np.random.default_rng(1).standard_normal((N_IMAGES, 2))
    pooled = ShapeAppearanceModel(**OPTIONS).fit(files, start=start)
    asked = []

    class Counting(ClusterSites):
        def ask(self, question, **arguments):
            asked.append(question)
            return super().ask(question, **arguments)

    with ExitStack() as stack:

        def open_sites(images, settings, starting):
            sites = Counting(
                client, images, settings, starting, folder=tmp_path / "shared", n_partitions=3
            )
            return stack.enter_context(sites)

        model = ShapeAppearanceModel(**OPTIONS).fit_at(open_sites, files, start=start)
    assert np.allclose(model.objective_, pooled.objective_, rtol=1e-6, atol=0)
    assert np.allclose(model.latents_, pooled.latents_, atol=1e-3)
    first = asked.index("appearance_derivatives")
    assert len(asked[first:]) <= 6 * model.n_iter_
    assert not (tmp_path / "shared").exists()  # nothing is left behind


@pytest.mark.slow
def test_workers_average_their_own_images_on_coarser_grids(client, files, tmp_path):
    options = OPTIONS | {"n_iter": 4, "levels": 2}
    pooled = ShapeAppearanceModel(**options).fit(files)
    model = ShapeAppearanceModel(**options)
    fit_on_cluster(model, files, client, tmp_path / "shared", n_partitions=3)
    assert model.origin_.level_begins == (0, 2)
    assert np.allclose(model.objective_, pooled.objective_, rtol=1e-5, atol=0)
    assert np.allclose(model.latents_, pooled.latents_, atol=1e-3)
    assert not (tmp_path / "shared").exists()


def test_a_digest_does_not_depend_on_the_split(client, files, tmp_path):
    images = FileImages(files)
    settings = ShapeAppearanceModel(**OPTIONS | {"n_iter": 0}).fit(files).settings_
    digests = []
    for n_partitions in (1, 4):
        with ClusterSites(
            client, images, settings, folder=tmp_path / "shared", n_partitions=n_partitions
        ) as sites:
            digests.append(sites.digest())
            latents = np.random.default_rng(0).standard_normal((N_IMAGES, 2))
            sites.restore(latents)
            assert np.array_equal(sites.latents, latents)
            assert np.array_equal(sites.latents_before_turn, latents)
    assert digests[0] == digests[1]


# ---- what people get wrong


def test_no_scheduler():
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9") as it:
        connect("tcp://127.0.0.1:9", 0.5)
    one_line(it)


def test_an_address_that_is_none():
    with pytest.raises(ClusterError, match="no Dask scheduler answers at nonsense://x") as it:
        connect("nonsense://x", 0.5)
    one_line(it)


def test_no_workers(files, tmp_path):
    settings = ShapeAppearanceModel(**OPTIONS | {"n_iter": 0}).fit(files).settings_
    alone = Processes(tmp_path)
    try:
        with connect(alone.address) as client:
            with pytest.raises(ClusterError, match="no worker for 1 s: start some") as it:
                ClusterSites(client, FileImages(files), settings, folder=tmp_path, patience=1)
            one_line(it)
    finally:
        alone.end()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (None, r"worker tcp:.* has no anamorph: install anamorph 0"),
        ("9.9", r"worker tcp:.* has anamorph 9.9, and this machine 0.*: install the same"),
    ],
)
def test_a_worker_with_other_software(client, monkeypatch, version, message):
    check_versions(client)
    found = client.get_versions(packages=["anamorph"])
    list(found["workers"].values())[1]["packages"]["anamorph"] = version
    monkeypatch.setattr(client, "get_versions", lambda packages: found)
    with pytest.raises(ClusterError, match=message) as it:
        check_versions(client)
    one_line(it)


def test_a_worker_of_another_version_that_comes_later(client, files, tmp_path, monkeypatch):
    settings = ShapeAppearanceModel(**OPTIONS | {"n_iter": 0}).fit(files).settings_
    monkeypatch.setattr(sites_module, "Partition", partial(Partition, version="9.9"))
    with pytest.raises(ClusterError, match=r"the fit was started with 9.9: install") as it:
        ClusterSites(client, FileImages(files), settings, folder=tmp_path)
    one_line(it)


def test_files_that_workers_cannot_read(client, files, tmp_path):
    images = FileImages(files)
    settings = ShapeAppearanceModel(**OPTIONS | {"n_iter": 0}).fit(files).settings_
    files[7].unlink()
    with pytest.raises(ImageError, match=r"on worker tcp:.*image-07.npy does not exist") as it:
        ClusterSites(client, images, settings, folder=tmp_path / "shared")
    one_line(it)
    assert not (tmp_path / "shared").exists()


def test_a_folder_that_workers_do_not_see(client, files, tmp_path, monkeypatch):
    settings = ShapeAppearanceModel(**OPTIONS | {"n_iter": 0}).fit(files).settings_

    class Elsewhere(ClusterSites):
        def restore(self, latents):
            super().restore(latents)
            (tmp_path / "shared").rename(tmp_path / "moved")  # as if it were another machine's

    with pytest.raises(ClusterError, match=r"worker tcp:.* does not see .*shared") as it:
        Elsewhere(client, FileImages(files), settings, folder=tmp_path / "shared")
    assert "share" in one_line(it)


def test_images_in_memory(client, tmp_path):
    images = np.random.default_rng(0).random((5, 8, 8))
    with pytest.raises(ImageError, match="read images from files, got images in memory") as it:
        fit_on_cluster(ShapeAppearanceModel(**OPTIONS), images, client, tmp_path)
    one_line(it)


def test_a_constant_image_is_found_by_workers(client, files, tmp_path):
    np.save(files[2], np.zeros((12, 10), np.float32))
    with pytest.raises(ImageError, match=r"image-02.npy is constant"):
        fit_on_cluster(ShapeAppearanceModel(**OPTIONS), files, client, tmp_path / "shared")


def brighten(files, factor):
    """Make some images brighter: all those of one partition."""
    for path in files:
        np.save(path, np.float32(factor) * np.load(path))


def test_partitions_that_differ_are_told_as_on_one_machine(client, files, tmp_path, caplog):
    """Each partition by itself is of one brightness."""
    brighten(files, 3)  # beyond 1, or a few that are not would be refused
    brighten(files[8:], 40)
    images = FileImages(files)
    with caplog.at_level("WARNING"):
        images.check(for_fit=True)
    expected, typical = list(caplog.messages), images.typical
    assert any("intensities of 3 of 11 images differ" in message for message in expected)
    settings = ShapeAppearanceModel(**OPTIONS | {"n_iter": 0}).fit(files).settings_
    caplog.clear()
    opened = FileImages(files)
    with (
        caplog.at_level("WARNING"),
        ClusterSites(client, opened, settings, folder=tmp_path / "shared", n_partitions=4),
    ):
        pass
    assert [text for text in caplog.messages if text in expected] == expected
    assert opened.typical == typical


def test_partitions_that_differ_absurdly_are_refused(client, files, tmp_path):
    brighten(files[8:], 1e6)
    with pytest.raises(ImageError, match=r"differ too much to be of one kind") as error:
        fit_on_cluster(ShapeAppearanceModel(**OPTIONS), files, client, tmp_path / "shared")
    assert str(files[8]) in one_line(error)
    assert not (tmp_path / "shared").exists()


def test_a_question_that_nobody_knows(client, files, tmp_path):
    settings = ShapeAppearanceModel(**OPTIONS | {"n_iter": 0}).fit(files).settings_
    with (
        ClusterSites(client, FileImages(files), settings, folder=tmp_path / "shared") as sites,
        pytest.raises(ValueError, match=r"question must be one of moments, .* got 'latents'"),
    ):
        sites.ask("latents")
