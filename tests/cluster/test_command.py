"""``anamorph cluster fit``: the options of ``fit``, and errors of one line."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pytest
import typer

from anamorph import ShapeAppearanceModel
from anamorph.cli import app
from anamorph.cli.commands import cluster as command
from anamorph.cli.commands.fit import fit

QUICK = ("-k", "2", "--iterations", "2", "--threads", "1")


def test_it_has_all_options_of_fit():
    commands = typer.main.get_command(app).commands
    on_cluster, here = commands["cluster"].commands["fit"], commands["fit"]
    ours, theirs = (
        {flag for option in command.params for flag in option.opts}
        for command in (on_cluster, here)
    )
    assert ours - theirs == {"--scheduler", "--scratch", "--partitions"}
    assert theirs - ours == {"--holdout"}  # the evidence of held-out images is found by one process
    assert "scheduler" not in inspect.signature(fit).parameters


def test_it_explains_itself(anamorph):
    text = anamorph("cluster", "fit", "--help", succeeds=True).stdout
    assert "anamorph cluster fit --scheduler" in text
    assert "--json" in text


def test_help_does_not_load_dask():
    code = (
        "import sys; sys.argv = ['anamorph', 'cluster', '--help']; from anamorph.cli import app\n"
    )
    code += "app(standalone_mode=False); print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(shown.stdout.splitlines()[-1].split())
    assert not loaded & {"dask", "distributed", "numpy", "numba"}


def test_it_writes_what_fit_writes(anamorph, processes, client, files, tmp_path):
    folder, scratch = files[0].parent, tmp_path / "scratch"
    output, other = tmp_path / "cluster.safetensors", tmp_path / "pooled.safetensors"
    result = anamorph(
        *("cluster", "fit", "--scheduler", processes.address, folder, "-o", output, *QUICK),
        *("--pad", 1, "--scratch", scratch, "--partitions", 3, "--json"),
        succeeds=True,
    )
    anamorph("fit", folder, "-o", other, *QUICK, "--pad", 1, succeeds=True)
    facts = json.loads(result.stdout)
    assert facts["command"] == "cluster fit"
    assert facts["n_images"] == len(files)
    models = [ShapeAppearanceModel.load(path) for path in (output, other)]
    assert np.allclose(models[0].objective_, models[1].objective_, rtol=1e-6, atol=0)
    assert models[0].origin_.pad == 1
    tables = [path.with_suffix(".latents.tsv").read_text() for path in (output, other)]
    assert tables[0].splitlines()[0] == tables[1].splitlines()[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("cluster.latents.tsv", "cluster.safetensors", "images"),
        *("pooled.latents.tsv", "pooled.safetensors"),
    ]


def test_no_scheduler_there(anamorph, files, tmp_path, monkeypatch):
    monkeypatch.setattr("anamorph.cluster.connection._SECONDS_TO_CONNECT", 0.5)
    output = tmp_path / "model.safetensors"
    result = anamorph(
        "cluster", "fit", "--scheduler", "tcp://127.0.0.1:9", files[0].parent, "-o", output, *QUICK
    )
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in result.error
    assert not output.exists()


def test_without_dask(anamorph, files, tmp_path, monkeypatch):
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    result = anamorph(
        "cluster", "fit", "--scheduler", "tcp://x:1", files[0].parent, "-o", tmp_path / "model"
    )
    assert "pip install 'anamorph[cluster]'" in result.error


@pytest.mark.parametrize("content", [b"", b"no array"])
def test_a_damaged_file(anamorph, processes, client, files, tmp_path, content):
    files[4].write_bytes(content)
    output = tmp_path / "model.safetensors"
    result = anamorph(
        *("cluster", "fit", "--scheduler", processes.address, files[0].parent),
        *("-o", output, *QUICK),
    )
    assert "image-04.npy" in result.error


def test_a_constant_image_is_found_on_a_worker(anamorph, processes, client, files, tmp_path):
    np.save(files[4], np.ones((12, 10), np.float32))
    result = anamorph(
        *("cluster", "fit", "--scheduler", processes.address, files[0].parent),
        *("-o", tmp_path / "model.safetensors", *QUICK),
    )
    assert "on worker tcp:" in result.error
    assert "image-04.npy is constant" in result.error
