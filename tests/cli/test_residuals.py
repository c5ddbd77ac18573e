"""Residual warps on the command line: written beside tables, and used by what warps."""

import nibabel as nib
import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from tests.cli.conftest import QUICK


@pytest.fixture
def bent(anamorph, volumes, tmp_path):
    """Return a model with residual warps, and a table with those of its images beside it."""
    model, table = tmp_path / "bent.safetensors", tmp_path / "bent.tsv"
    anamorph("fit", volumes, "-o", model, *QUICK, "--residual", "after", succeeds=True)
    anamorph("encode", model, volumes, "-o", table, "--residual", succeeds=True)
    assert (tmp_path / "bent.residuals.safetensors").exists()
    return model, table


def images_in(folder):
    return np.array([nib.load(path).get_fdata() for path in sorted(folder.iterdir())])


def test_commands_use_them(anamorph, bent, volumes, tmp_path):
    path, table = bent
    base = (path, "--latents", table)
    for name, options in {"modes": (), "bent": ("--residual",)}.items():
        out = tmp_path / f"{name}-jacobians"
        anamorph("jacobians", *base, *options, "-o", out, succeeds=True)
        out = tmp_path / f"{name}-images"
        anamorph("warp", *base, *options, "--apply", volumes, "-o", out, succeeds=True)
        out = tmp_path / f"{name}-warps"
        anamorph("warps", *base, *options, "--direction", "to", "-o", out, succeeds=True)
    for kind in ("jacobians", "images", "warps"):
        modes, bent_ = (images_in(tmp_path / f"{name}-{kind}") for name in ("modes", "bent"))
        assert np.nanmax(np.abs(modes - bent_)) > 1e-3
    model, files = ShapeAppearanceModel.load(path), [str(p) for p in sorted(volumes.iterdir())]
    expected = model.to_template(files)
    np.testing.assert_allclose(images_in(tmp_path / "bent-images"), expected, atol=1e-3)
    out = tmp_path / "found"
    anamorph("warp", path, volumes, "--residual", "-o", out, succeeds=True)
    np.testing.assert_allclose(images_in(out), expected, atol=1e-3)


def test_what_is_missing_is_said(anamorph, bent, volume_model, volumes, tmp_path):
    path, table = bent
    plain = anamorph("encode", volume_model, volumes, "-o", tmp_path / "z.tsv", "--residual")
    assert "fit it with --residual after" in plain.error
    assert not (tmp_path / "z.tsv").exists()
    beside = tmp_path / "bent.residuals.safetensors"
    kept = beside.read_bytes()
    jacobians = ("jacobians", path, "--latents", table, "--residual", "-o", tmp_path / "out")
    beside.write_bytes(kept[:-40])
    assert "truncated" in anamorph(*jacobians).error
    beside.unlink()
    assert "'anamorph encode --residual' writes it" in anamorph(*jacobians).error
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
    beside.write_bytes(kept)
    rows = table.read_text().splitlines()
    table.write_text("\n".join([rows[0], rows[1].replace("sub-01", "sub-99"), *rows[2:]]) + "\n")
    assert "no image sub-99" in anamorph(*jacobians).error


def test_residual_warps_of_another_model_are_refused(anamorph, bent, volumes, tmp_path):
    """They were taken, and every image was warped by what is no warp of it."""
    _, table = bent
    other = tmp_path / "other.safetensors"
    fit = ("fit", volumes, "-o", other, "-k", 2, "--iterations", 1, "--residual", "after")
    anamorph(*fit, "--threads", 1, succeeds=True)
    result = anamorph("jacobians", other, "--latents", table, "--residual", "-o", tmp_path / "out")
    assert "it is of another model" in result.error
    assert not (tmp_path / "out").exists()
