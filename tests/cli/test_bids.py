"""Commands that take images from a BIDS dataset write derivatives of it."""

import json

import numpy as np
import pytest

from tests.cli.conftest import QUICK, VOLUME, blobs
from tests.images.filemaking import rotated_affine, save_nifti


@pytest.fixture
def dataset(tmp_path):
    root = tmp_path / "dataset"
    for n, image in enumerate(blobs(6, VOLUME)):
        folder = root / f"sub-{n:02}" / "anat"
        folder.mkdir(parents=True)
        save_nifti(folder / f"sub-{n:02}_T1w.nii.gz", image, rotated_affine())
    rows = [f"sub-{n:02}\t{30 + n}" for n in range(5)]  # one is not in the table
    (root / "participants.tsv").write_text("\n".join(["participant_id\tage", *rows]) + "\n")
    return root


def columns(path):
    header, *rows = (line.split("\t") for line in path.read_text().splitlines())
    return {name: [row[n] for row in rows] for n, name in enumerate(header)}


def test_a_dataset_goes_in_and_derivatives_come_out(anamorph, dataset, tmp_path):
    folder = dataset / "derivatives" / "anamorph"
    model, given = folder / "t1.safetensors", ("--bids", dataset, "--suffix", "T1w")
    anamorph("fit", *given, "-o", model, *QUICK, succeeds=True)
    description = json.loads((folder / "dataset_description.json").read_text())
    assert description["DatasetType"] == "derivative"
    assert description["GeneratedBy"][0]["Name"] == "anamorph"
    table = columns(folder / "participants.tsv")
    assert table["participant_id"] == [f"sub-{n:02}" for n in range(6)]
    assert table["age"] == ["30", "31", "32", "33", "34", "n/a"]
    latents = columns(folder / "t1.latents.tsv")
    assert np.allclose(np.array(table["z1"], float), np.array(latents["z1"], float))
    again = anamorph("fit", *given, "-o", model, *QUICK)
    assert "use --force" in again.error
    made = tmp_path / "made"
    some = ("--participants", dataset / "participants.tsv")
    anamorph("reconstruct", model, *given, *some, "-o", made, succeeds=True)
    path = made / "sub-03" / "anat" / "sub-03_desc-reconstruction_T1w.nii.gz"
    assert path.exists()
    assert not (made / "sub-05").exists()
    assert (made / "dataset_description.json").exists()
    anamorph("encode", model, *given, "-o", tmp_path / "new" / "z.tsv", succeeds=True)
    assert columns(tmp_path / "new" / "participants.tsv")["age"][0] == "30"


def test_what_does_not_go_together_is_told(anamorph, dataset, tmp_path):
    place = ("-o", tmp_path / "m.safetensors", *QUICK)
    assert "--bids needs the suffix" in anamorph("fit", "--bids", dataset, *place).error
    both = anamorph("fit", dataset, "--bids", dataset, "--suffix", "T1w", *place)
    assert "and not both" in both.error
    assert "give --bids" in anamorph("fit", dataset, "--suffix", "T1w", *place).error
    assert "--bids FOLDER" in anamorph("fit", *place).error
    odd = anamorph("fit", "--bids", dataset, "--suffix", "T1w", "--entity", "ses", *place)
    assert "must be KEY=VALUE" in odd.error
    root = anamorph("fit", dataset, *place)
    assert "--suffix T1w" in root.error
