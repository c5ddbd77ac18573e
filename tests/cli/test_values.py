"""Values as people type them, and where settings come from."""

import inspect

import pytest
import typer

from anamorph.cli import app
from anamorph.cli.terminal.errors import CommandError
from anamorph.cli.terminal.images import find_files, natural_order
from anamorph.cli.terminal.messages import counted
from anamorph.cli.terminal.settings import (
    ModelSettings,
    command_with_settings,
    parse_components,
    parse_integers,
    parse_memory,
    parse_numbers,
    read_settings,
)
from anamorph.model import presets
from anamorph.model.hyperparameters import KEYS


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("4GB", 4 * 10**9), ("1.5 MiB", 3 * 2**19), ("500k", 500_000), ("100", 100), ("2gib", 2**31)],
)
def test_memory(text, n_bytes):
    assert parse_memory("--memory", text) == n_bytes


@pytest.mark.parametrize("text", ["", "GB", "4 XB", "-1GB", "1e3MB"])
def test_what_is_no_memory_is_explained(text):
    with pytest.raises(typer.BadParameter, match="must be like"):
        parse_memory("--memory", text)


def test_numbers_are_separated_by_commas_or_spaces():
    assert parse_numbers("--at", "-3, 0 3") == (-3, 0, 3)
    assert parse_components("-k", "16") == 16
    assert parse_components("-k", "30,70") == (30, 70)
    for wrong in ("", "a", "1;2", "inf", "nan"):
        with pytest.raises(typer.BadParameter, match="must be numbers"):
            parse_numbers("--at", wrong)
    with pytest.raises(typer.BadParameter, match="must be whole numbers"):
        parse_integers("--modes", "1.5")


def test_flags_override_the_file_which_overrides_the_preset(tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text("components = 5\nshape_penalty = [1, 2, 3, 4, 5]\nmemory = '1GB'\n")
    flags = {"n_components": "7", "n_iter": None, "balance": "1,0"}
    settings = ModelSettings("digits", config, flags=flags).merged()
    assert settings["n_components"] == 7
    assert settings["shape_penalty"] == (1, 2, 3, 4, 5)
    assert settings["memory_budget"] == 10**9
    assert settings["balance"] == (1, 0)
    for name in ("likelihood", "appearance_penalty", "n_iter"):
        assert settings[name] == presets.PRESETS["digits"][name]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("components 5", "not a TOML file"),
        ("colour = 5", "sets 'colour', and settings are components"),
        ("balance = ['a', 1]", "balance must be a list of numbers"),
        ("[balance]\na = 1", "balance must be a value"),
    ],
)
def test_wrong_settings_files_are_explained(tmp_path, content, problem):
    path = tmp_path / "settings.toml"
    path.write_text(content)
    with pytest.raises(CommandError, match=problem) as error:
        read_settings(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_help_lists_the_keys_of_settings_files(command):
    options = typer.main.get_command(app).commands[command].params
    (text,) = [option.help for option in options if option.name == "config"]
    assert all(key in text for key in KEYS)


def test_settings_reach_a_command_as_one_by_the_names_of_the_estimator():
    given = {}

    @command_with_settings("preset", "labels", "n_components", "prior_dof")
    def command(text, settings: ModelSettings, force=False):
        given.update(text=text, force=force, **settings.merged())

    assert list(inspect.signature(command).parameters) == [
        "text", "preset", "labels", "n_components", "prior_dof", "force",
    ]  # fmt: skip
    typed = {"preset": "digits", "labels": True, "n_components": "7", "prior_dof": None}
    command(text="a", force=True, **typed)
    assert given == presets.preset("digits") | {
        "likelihood": "categorical", "n_components": 7, "text": "a", "force": True,
    }  # fmt: skip


def test_every_setting_of_a_file_is_an_option_of_fit():
    options = typer.main.get_command(app).commands["fit"].params
    assert {f"--{key}" for key in KEYS} < {name for option in options for name in option.opts}


@pytest.mark.parametrize("name", presets.PRESETS)
def test_presets_are_arguments_of_the_estimator(name):
    from anamorph import ShapeAppearanceModel
    from anamorph.images.arrays import ImageFormat
    from anamorph.model.settings import checked_settings

    model = ShapeAppearanceModel(**presets.preset(name))
    space = (8, 8, 8) if name == "brains3d" else (8, 8)
    image_format = ImageFormat(model.likelihood, space, 3, -1)
    settings = checked_settings(model.get_params(), image_format, 1000)
    assert settings.layout.n_latents == {"faces": 64, "digits": 16}.get(name, 100)
    assert model.n_iter == (8 if "brains" in name else 20)


def test_there_is_no_such_preset():
    with pytest.raises(ValueError, match="must be one of"):
        presets.preset("cats")
    with pytest.raises(CommandError, match="--preset must be one of faces, digits"):
        ModelSettings("cats").merged()


def test_one_thing_is_not_several():
    assert [counted(n, "mode") for n in (0, 1, 2)] == ["0 modes", "1 mode", "2 modes"]


def test_files_come_in_natural_order(tmp_path):
    for name in ("img10.png", "img2.png", "img1.png", "notes.txt", ".img3.png", "²img.png"):
        (tmp_path / name).touch()
    expected = ["img1.png", "img2.png", "img10.png", "²img.png"]
    assert [path.name for path in find_files([str(tmp_path)])] == expected
    pattern = [path.name for path in find_files([str(tmp_path / "*.png")])]
    assert pattern == expected
    assert sorted([tmp_path / "a2", tmp_path / "a10"], key=natural_order)[0].name == "a2"


def test_nothing_found_is_explained(tmp_path):
    with pytest.raises(CommandError, match=r"\*\.nii matches no file"):
        find_files([str(tmp_path / "*.nii")])
    with pytest.raises(CommandError, match="folder without images"):
        find_files([str(tmp_path)])
