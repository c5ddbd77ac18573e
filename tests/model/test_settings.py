"""The table of hyperparameters, and what the estimator, commands and docs make of it."""

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.images.arrays import ImageFormat
from anamorph.likelihoods import LIKELIHOODS
from anamorph.model.checks import ArgumentError
from anamorph.model.hyperparameters import (
    HYPERPARAMETERS,
    KEYS,
    LAYOUTS,
    checked_arguments,
    likelihood_briefs,
)
from anamorph.model.settings import checked_settings

ROOT = Path(__file__).parents[2]
FORMAT = ImageFormat("gaussian", (8, 8), 1, None)


def settings(**arguments):
    params = ShapeAppearanceModel(2).get_params() | arguments
    return checked_settings(params, FORMAT, 10)


def test_the_estimator_has_the_parameters_and_defaults_of_the_table():
    parameters = inspect.signature(ShapeAppearanceModel).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    assert defaults == {name: entry.default for name, entry in HYPERPARAMETERS.items()}


@pytest.mark.parametrize("name", HYPERPARAMETERS)
def test_defaults_are_accepted_and_entries_are_complete(name):
    entry = HYPERPARAMETERS[name]
    assert entry.checked(entry.default) == entry.default
    assert entry.accepted.words
    assert set(entry.layouts) <= set(LAYOUTS)
    assert entry.help
    assert entry.help[-1] != "."
    assert not entry.none_means or entry.default is None


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("n_iter", -1), ("n_steps", 0), ("random_state", -1), ("n_threads", 0),
        ("memory_budget", 0.5), ("tol", -1), ("decimation", 0), ("balance", (0, 1)),
    ],
)  # fmt: skip
def test_errors_say_what_the_table_says_is_accepted(name, wrong):
    entry = HYPERPARAMETERS[name]
    with pytest.raises(ArgumentError) as error:
        entry.checked(wrong)
    assert str(error.value) == f"{name} must be {entry.accepted.words}, got {wrong!r}"


@pytest.mark.parametrize("name", ["likelihood", "latents", "device"])
def test_choices_are_listed_by_errors_and_by_the_help(name):
    entry = HYPERPARAMETERS[name]
    with pytest.raises(ArgumentError, match=f"{name} must be one of .* got 'none'") as error:
        entry.checked("none")
    choices = re.findall(r"'(\w+)'", str(error.value))[:-1]
    assert len(choices) > 2
    assert all(choice in entry.help for choice in choices)


def test_values_of_numpy_become_plain():
    given = {"n_components": np.int64(3), "balance": np.array([1, 0.5], np.float32), "tol": None}
    checked = checked_arguments(given)
    assert checked == {"n_components": 3, "balance": (1.0, 0.5), "tol": None}
    assert type(checked["n_components"]) is int
    assert type(checked["balance"][1]) is float


def test_one_number_of_separate_latents_is_halved():
    layout = settings(latents="separate", n_components=5).layout
    assert (layout.n_appearance, layout.n_shape, layout.n_latents) == (2, 3, 5)


def test_what_goes_together_is_checked_with_the_images():
    assert settings(prior_dof=None).prior_dof == 2
    assert settings(voxel_size=(1, 2)).voxel_size == (1, 2)
    for arguments in (
        {"n_components": 10},
        {"n_components": (1, 1)},
        {"latents": "separate", "n_components": 1},
        {"prior_dof": 0.5},
        {"voxel_size": (1, 2, 3)},
    ):
        with pytest.raises(ArgumentError, match=f"{next(iter(arguments))}|n_components"):
            settings(**arguments)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_penalties_that_nobody_gives_are_those_of_the_likelihood(name):
    found = settings(likelihood=name, mean_penalty=[1, 2, 3])
    penalties = LIKELIHOODS[name].default_penalties
    assert found.shape_penalty == penalties["shape"]
    assert found.appearance_penalty == penalties["appearance"]
    assert found.mean_penalty == (1, 2, 3)


def test_an_argument_is_checked_once_on_the_way_of_a_fit(monkeypatch):
    from anamorph.model.hyperparameters import Hyperparameter

    names = []
    checked = Hyperparameter.checked
    monkeypatch.setattr(
        Hyperparameter,
        "checked",
        lambda self, value: [names.append(self.name), checked(self, value)][1],
    )
    images = np.random.default_rng(0).random((4, 8, 8))
    ShapeAppearanceModel(1, n_iter=1, n_threads=1).fit(images)
    assert sorted(names) == sorted(HYPERPARAMETERS)


def test_the_table_knows_every_likelihood_without_importing_any():
    assert set(likelihood_briefs()) == set(LIKELIHOODS)
    for name in LIKELIHOODS:
        assert name in HYPERPARAMETERS["likelihood"].help
    code = "import sys, anamorph.model.hyperparameters, anamorph.cli; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(found.stdout.split()) & {"numpy", "numba", "scipy", "sklearn"}


def test_keys_of_files_are_flags():
    assert all(HYPERPARAMETERS[name].flag == f"--{key}" for key, name in KEYS.items())
    assert {"verbose"} == set(HYPERPARAMETERS) - set(KEYS.values())


def test_the_documentation_shows_the_table():
    spec = importlib.util.spec_from_file_location(
        "settings_table", ROOT / "docs" / "scripts" / "settings_table.py"
    )
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    shown = script.on_page_markdown(page)
    for name, entry in HYPERPARAMETERS.items():
        assert f"| [`{name}`]" in shown
        assert f"\n### {name}\n" in page
        assert f"`{entry.flag}`" in shown or not entry.flag
    for name in LIKELIHOODS:
        assert f"| {name} |" in shown
    assert script.on_page_markdown("no table") == "no table"
