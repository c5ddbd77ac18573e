"""Policies: careful defaults, files that change what they mention, and ranges of settings."""

import pickle
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from anamorph.estimator import ShapeAppearanceModel
from anamorph.federation import Policy, PolicyError, TooFewImagesError
from anamorph.fitting.sums import ANALYSES, FIELDS, POSING
from anamorph.images.arrays import ImageFormat
from anamorph.likelihoods import LIKELIHOODS
from anamorph.model.presets import PRESETS
from anamorph.model.settings import LatentLayout, checked_settings

ROOT = Path(__file__).parents[3]


def settings_of(likelihood="gaussian", space=(12, 10), **arguments):
    model = ShapeAppearanceModel(likelihood=likelihood, **arguments)
    n_channels = 3 if likelihood == "categorical" else 1
    image_format = ImageFormat(likelihood, space, n_channels, None)
    return checked_settings(model.get_params(deep=False), image_format, 1000)


def test_defaults_are_careful():
    policy = Policy()
    assert policy.minimum_images == 10
    assert policy.secure_sum
    assert policy.fits == 1
    assert policy.images_per_component == 5
    assert set(policy.questions) == FIELDS.keys() | POSING.keys() | ANALYSES.keys()


def test_the_documentation_shows_the_defaults():
    text = (ROOT / "docs/federation.md").read_text(encoding="utf-8")
    (shown,) = [block for block in re.findall(r"```toml\n(.*?)```", text, re.S) if "fits" in block]
    assert Policy.checked(tomllib.loads(shown)) == Policy()


def test_a_policy_goes_to_other_processes():
    policy = Policy(minimum_images=3)
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_a_file_changes_what_it_mentions(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(
        'minimum_images = 25\nquestions = ["moments"]\nlargest_share = 1\n'
        "[ranges]\nn_steps = [4, 16]\n"
    )
    policy = Policy.read(path)
    assert policy.minimum_images == 25
    assert policy.questions == ("moments",)
    assert policy.secure_sum
    assert policy.largest_share == 1.0
    assert policy.ranges["n_steps"] == (4, 16)
    assert policy.ranges["balance"] == Policy().ranges["balance"]
    path.write_text("minimum_images = 2.5\n")
    with pytest.raises(PolicyError, match=r"policy.toml: minimum_images must be an integer >= 0"):
        Policy.read(path)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"largest_share": 1.5}, "largest_share must be a number from 0 to 1, got 1.5"),
        ({"images_per_component": "5"}, "images_per_component must be a number >= 0, got '5'"),
        ({"epsilon_per_year": -1}, "epsilon_per_year must be a number >= 0, got -1"),
        ({"exact_statistics": 1}, "exact_statistics must be true or false, got 1"),
        ({"questions_per_fit": True}, "questions_per_fit must be an integer >= 0, got True"),
        ({"ranges": 3}, "ranges must be a table of settings, got 3"),
        ({"ranges": {"seed": [0, 1]}}, "ranges has no setting 'seed'; known are shape_penalty"),
        ({"ranges": {"n_steps": [8, 4]}}, "two numbers >= 0, the lower one first, got"),
        ({"ranges": {"n_steps": 8}}, "two numbers >= 0, the lower one first, got 8"),
    ],
)
def test_a_wrong_rule_is_named(given, expected):
    with pytest.raises(PolicyError) as error:
        Policy.checked(given)
    assert expected in str(error.value)


# ---- settings


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_within_the_ranges(name):
    options = dict(PRESETS[name])
    space = (12, 10, 8) if name.endswith("3d") else (12, 10)
    settings = settings_of(options.pop("likelihood"), space, **options)
    Policy().check_settings(settings, options["n_iter"])


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("latents", ["joint", "separate", "shape", "appearance"])
def test_every_default_is_within_the_ranges(likelihood, latents):
    n_components = (4, 8) if latents == "separate" else 16
    settings = settings_of(likelihood, latents=latents, n_components=n_components)
    Policy().check_settings(settings, 20)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"shape_penalty": (0, 0, 1e-9, 0, 0)}, "shape_penalty from 0.001 to 1000"),
        ({"shape_penalty": (0, 0, 1e300, 0, 0)}, "shape_penalty from 0.001 to 1000"),
        ({"appearance_penalty": (0.0, 0.0, 0.0)}, "appearance_penalty from 0.0001 to 100000"),
        ({"mean_penalty": (1e9, 0.0, 0.0)}, "mean_penalty from 1e-06 to 10000"),
        ({"balance": (1e-9, 0.0)}, "balance from 0.01 to 1000"),
        ({"prior_dof": 1e9}, "prior_dof from 0 to 100000, got 1e\\+09"),
        ({"decimation": 1e6}, "decimation from 0.001 to 10, got 1e\\+06"),
        ({"n_steps": 1000}, "n_steps from 1 to 64, got 1000"),
        ({"voxel_size": (1.0, 1e-9)}, "voxel_size from 0.001 to 1000, got 1, 1e-09"),
        ({"decimation": float("nan")}, "decimation must be 1 finite numbers >= 0, got nan"),
        ({"balance": ("1", 0.0)}, "balance must be 2 finite numbers >= 0"),
        ({"balance": (1.0,)}, "balance must be 2 finite numbers >= 0"),
        ({"shape_penalty": (-1.0, 0, 1, 0, 0)}, "shape_penalty must be 5 finite numbers >= 0"),
        ({"layout": LatentLayout(4, 400, 4, 0)}, "laid out as joint, separate, shape, appearance"),
        ({"layout": LatentLayout(4, 4.0, 4, 0)}, "laid out as joint, separate, shape, appearance"),
        ({"layout": LatentLayout(300, 300, 300, 0)}, "at most 256 components, got 300"),
    ],
)
def test_a_setting_out_of_its_range_is_refused_by_name(changes, expected):
    settings = replace(settings_of(), **changes)
    with pytest.raises(PolicyError, match=expected):
        Policy().check_settings(settings, 20)


@pytest.mark.parametrize("n_iterations", [201, -1, 2.0, True, "20"])
def test_iterations_are_a_number_within_the_policy(n_iterations):
    with pytest.raises(PolicyError, match=r"iterations|n_iter"):
        Policy().check_settings(settings_of(), n_iterations)


# ---- numbers of images


def test_images_must_be_a_multiple_of_components():
    policy = Policy()
    policy.check_total(80, 16)
    with pytest.raises(TooFewImagesError, match="all sites have 79 for 16: fit at most 15"):
        policy.check_total(79, 16)


def test_a_fit_tells_no_more_sums_than_there_are_images():
    policy = Policy()
    policy.check_weighted_sums(300, 16, 20)
    with pytest.raises(TooFewImagesError, match=r"tell 320 weighted sums of 80 .* at most 6 iter"):
        policy.check_weighted_sums(80, 16, 20)


def test_no_site_may_hold_nearly_all_images():
    policy = Policy()
    policy.check_counts({"a": 90, "b": 5, "c": 5})
    with pytest.raises(PolicyError, match="a has 91 of 100 images"):
        policy.check_counts({"a": 91, "b": 5, "c": 4})
    replace(policy, largest_share=1.0).check_counts({"a": 91})


@pytest.mark.parametrize("count", [0, -5, 1e6, True, "10"])
def test_counts_are_numbers_of_images(count):
    with pytest.raises(PolicyError, match="a must have a number of images >= 1"):
        Policy().check_counts({"a": count, "b": 10, "c": 10})
