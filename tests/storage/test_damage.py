"""Damaged models and checkpoints: one line that says so, and never a model that is wrong."""

import json
import warnings

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.storage.errors import ModelFileError
from anamorph.storage.verify import verify_file
from benchmarks.damage import damaged_copies, forged_copies
from tests import simulated
from tests.conftest import one_line

OPTIONS = {"n_components": 2, "n_iter": 2, "random_state": 0, "n_threads": 1}


def images():
    *_, stack = simulated.random_problem("gaussian", n_images=6, missing=0.0)
    return stack[:, 0]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return a model file and a checkpoint after one iteration."""
    folder = tmp_path_factory.mktemp("stored")
    ShapeAppearanceModel(**OPTIONS | {"n_iter": 1}).fit(images(), checkpoint=folder / "checkpoint")
    ShapeAppearanceModel(**OPTIONS).fit(images()).save(folder / "model.safetensors")
    return folder


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def use(path):
    """Use a model, or resume from a checkpoint."""
    if path.name == "checkpoint":
        ShapeAppearanceModel(**OPTIONS).fit(images(), checkpoint=path)
    else:
        ShapeAppearanceModel.load(path)


def test_a_model_in_300_damages_is_refused_in_one_line(stored, tmp_path):
    content, path = (stored / "model.safetensors").read_bytes(), tmp_path / "model.safetensors"
    original = ShapeAppearanceModel.load(stored / "model.safetensors")
    told: list[str] = []
    for what, damaged in damaged_copies(content, 300):
        path.write_bytes(damaged)
        try:
            loaded = ShapeAppearanceModel.load(path)
        except ModelFileError as error:
            told.append(str(error))
            continue
        # Only white space of the header may change without harm.
        assert np.array_equal(loaded.mean_, original.mean_), what
        assert np.array_equal(loaded.shape_basis_, original.shape_basis_), what
    assert len(told) > 250
    assert all(str(path) in text and "\n" not in text for text in told)


def test_a_checkpoint_in_200_damages_is_refused_in_one_line(stored, tmp_path):
    content, path = (stored / "checkpoint").read_bytes(), tmp_path / "checkpoint"
    model, stack = ShapeAppearanceModel(**OPTIONS), images()
    for what, damaged in damaged_copies(content, 200, seed=1):
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError) as error:
            model.fit(stack, checkpoint=path)
        assert str(path) in one_line(error), what
        assert path.read_bytes() == damaged, what  # theirs to look at, not ours to replace


def test_old_files_without_a_checksum_are_read(stored, tmp_path):
    for name, kind in (("model.safetensors", "model"), ("checkpoint", "checkpoint")):
        path = tmp_path / name
        path.write_bytes(forged_copies(stored / name, lambda arrays, facts: None))
        found = verify_file(path)
        assert (found.kind, found.has_checksum) == (kind, False)
        assert verify_file(stored / name).has_checksum
    expected = ShapeAppearanceModel(**OPTIONS).fit(images())
    model = ShapeAppearanceModel(**OPTIONS).fit(images(), checkpoint=tmp_path / "checkpoint")
    assert np.array_equal(model.mean_, expected.mean_)
    assert np.array_equal(
        ShapeAppearanceModel.load(tmp_path / "model.safetensors").mean_, expected.mean_
    )


def test_a_damaged_name_of_the_checksum_does_not_make_a_file_old(stored, tmp_path):
    content = (stored / "model.safetensors").read_bytes()
    path = tmp_path / "model.safetensors"
    path.write_bytes(content.replace(b"checksum", b"checksun"))
    with pytest.raises(ModelFileError, match="damaged"):
        ShapeAppearanceModel.load(path)


def _spoil(name, change):
    def spoil(arrays, facts):
        arrays[name] = change(arrays[name])

    return spoil


def _with_nan(array):
    array = array.copy()
    array.flat[0] = np.nan
    return array


BOTH = {
    "NaN in the mean": (_spoil("mean", _with_nan), "mean holds NaN"),
    "infinite basis": (_spoil("shape_basis", lambda a: a * np.inf), "shape_basis holds NaN"),
    "shape": (_spoil("mean", lambda a: a[:, 1:]), "must have shape"),
    "type": (_spoil("mean", lambda a: a.astype(np.float64)), "must be float32"),
    "integers": (_spoil("latent_precision", lambda a: a.astype(np.int64)), "must be float64"),
    "noise": (_spoil("noise_precision", lambda a: -a), "must be positive"),
    "indefinite": (_spoil("latent_precision", lambda a: -a), "positive definite"),
    "not symmetric": (_spoil("latent_precision", lambda a: a + np.eye(2, k=1)), "symmetric"),
    "without mean": (lambda arrays, facts: arrays.pop("mean"), "mean"),
    "one more": (lambda arrays, facts: arrays.update(x=np.zeros(1)), "does not belong"),
}


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoint"])
@pytest.mark.parametrize("what", BOTH)
def test_contents_that_cannot_be_a_model(stored, tmp_path, name, what):
    spoil, words = BOTH[what]
    path = tmp_path / name
    path.write_bytes(forged_copies(stored / name, spoil))
    with pytest.raises(ModelFileError, match=words) as error:
        verify_file(path)
    one_line(error)
    with pytest.raises(ModelFileError) as error:
        use(path)
    one_line(error)


def _set(*keys, value):
    def change(arrays, facts):
        for key in keys[:-1]:
            facts = facts[key]
        facts[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("arguments", "n_components"), -3),
        (("arguments", "nonsense"), 1),
        (("arguments",), [1]),
        (("settings", "likelihood_name"), "gausian"),
        (("settings", "n_steps"), 0),
        (("settings", "n_steps"), "8"),
        (("settings", "decimation"), -1.0),
        (("settings", "balance"), [1.0]),
        (("settings", "voxel_size"), [1.0, 0.0]),
        (("settings", "shape_penalty"), [1.0]),
        (("settings", "shape_penalty"), ["a"] * 5),
        (("settings", "space"), [3]),
        (("settings", "space"), "ab"),
        (("settings", "layout"), {"n_latents": 2}),
        (("settings", "layout", "n_shape"), 1),
        (("settings", "layout", "first_shape"), 1),
        (("settings", "another"), 1),
        (("settings",), None),
        (("format", "space"), [5, 5]),
        (("format", "channel_axis"), 9),
        (("format",), 3),
        (("objective",), [1.0, None]),
        (("objective",), [float("nan")]),
        (("objective",), "12"),
        (("origin", "pad"), 40),
        (("origin", "pad"), -1),
        (("origin", "n_images"), 0),
        (("origin", "affine"), [[1, 0], [0, 1]]),
        (("origin", "affine"), [[0.0] * 4] * 3 + [[0, 0, 0, 1]]),
        (("origin", "affine"), 7),
        (("origin", "seconds"), [-1.0]),
        (("origin", "suffix"), 5),
        (("origin",), {}),
    ],
)
def test_facts_that_cannot_be_of_a_model(stored, tmp_path, keys, value):
    path = tmp_path / "model.safetensors"
    path.write_bytes(forged_copies(stored / "model.safetensors", _set(*keys, value=value)))
    with pytest.raises(ModelFileError) as error:
        ShapeAppearanceModel.load(path)
    assert str(path) in one_line(error)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", 0.0),
        ("step", 2.0),
        ("step", None),
        ("objective", [float("inf")]),
        ("seconds", []),
        ("log_determinant_sum", "x"),
        ("fingerprint", "other"),
    ],
)
def test_facts_that_cannot_be_of_a_checkpoint(stored, tmp_path, key, value):
    path = tmp_path / "checkpoint"
    path.write_bytes(forged_copies(stored / "checkpoint", _set(key, value=value)))
    with pytest.raises(ModelFileError) as error:
        ShapeAppearanceModel(**OPTIONS).fit(images(), checkpoint=path)
    one_line(error)


def test_latents_of_other_images_are_refused(stored, tmp_path):
    path = tmp_path / "checkpoint"
    changed = _spoil("latents", lambda latents: latents[1:])
    path.write_bytes(forged_copies(stored / "checkpoint", changed))
    with pytest.raises(ModelFileError, match="latents must have shape"):
        ShapeAppearanceModel(**OPTIONS).fit(images(), checkpoint=path)


def test_the_checksum_is_of_names_types_shapes_values_and_facts(stored):
    with open(stored / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    assert len(json.loads(header["__metadata__"]["anamorph"])["checksum"]) == 32
