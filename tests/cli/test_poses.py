"""Poses on the command line: in tables, and in images that are written."""

from __future__ import annotations

import nibabel as nib
import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.storage.tables import read_latents, read_poses
from tests.cli.conftest import QUICK


@pytest.mark.slow
def test_tables_have_poses_and_images_are_written_where_they_were(anamorph, volumes, tmp_path):
    path, output = tmp_path / "model.safetensors", tmp_path / "latents.tsv"
    anamorph("fit", volumes, "-o", path, *QUICK, "--align", "translation", succeeds=True)
    model, files = ShapeAppearanceModel.load(path), sorted(volumes.iterdir())
    names = ("shift1", "shift2", "shift3")
    assert model.pose_names_ == names
    fitted = read_poses(tmp_path / "model.latents.tsv", names)
    assert np.abs(fitted.mean(axis=0)).max() < 0.1
    anamorph("encode", path, volumes, "-o", output, succeeds=True)
    poses, (_, latents) = read_poses(output, names), read_latents(output, 2)
    np.testing.assert_allclose(poses, model.poses(files), atol=1e-3)
    folder = tmp_path / "out"
    anamorph("reconstruct", path, "--latents", output, "-o", folder, succeeds=True)
    written = nib.load(sorted(folder.iterdir())[0]).get_fdata()
    expected = model.inverse_transform(latents, poses=poses)[0]
    np.testing.assert_allclose(written, expected, atol=1e-3)


def test_a_table_with_some_columns_of_a_pose_is_refused(tmp_path):
    table = tmp_path / "latents.tsv"
    table.write_text("participant_id\tz1\tshift1\nsub-01\t0.5\t1.0\n", encoding="utf-8")
    with pytest.raises(ValueError, match="lacks shift2 of the poses"):
        read_poses(table, ("shift1", "shift2"))
    assert read_poses(table, ("turn12",)) is None


@pytest.mark.parametrize("command", ["report", "explore", "reconstruct"])
def test_latents_of_another_model_are_refused(anamorph, volume_model, tmp_path, command):
    table, output = tmp_path / "latents.tsv", tmp_path / "out"
    table.write_text("participant_id\tz1\tz2\tshift1\nsub-01\t0.5\t1.0\t2.0\n", encoding="utf-8")
    result = anamorph(command, volume_model, "--latents", table, "-o", output)
    assert "has the poses shift1, and the model has none: make it with this model" in result.error
    assert not output.exists()


@pytest.mark.parametrize("wrong", ["--align=Rigid", "--levels=0", "--intensity=local"])
def test_settings_are_checked_before_images_are_read(anamorph, tmp_path, wrong):
    for name in "ab":
        (tmp_path / f"{name}.nii.gz").write_bytes(b"not an image")
    result = anamorph("fit", tmp_path, "-o", tmp_path / "model.safetensors", wrong)
    assert result.error.startswith(f"{wrong.split('=')[0]} must be ")
