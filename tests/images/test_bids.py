"""Images of BIDS datasets are found by their names."""

import pytest

from anamorph.images.bids import find_bids, parse_name, short_names
from anamorph.images.errors import ImageError


@pytest.fixture
def dataset(tmp_path):
    for name in (
        "sub-01/ses-1/anat/sub-01_ses-1_T1w.nii.gz",
        "sub-01/ses-2/anat/sub-01_ses-2_T1w.nii.gz",
        "sub-01/ses-1/anat/sub-01_ses-1_T1w.json",
        "sub-01/ses-1/func/sub-01_ses-1_task-rest_run-1_bold.nii.gz",
        "sub-02/ses-1/anat/sub-02_ses-1_T1w.nii.gz",
        "sub-02/ses-1/anat/sub-02_ses-1_acq-fast_T1w.nii.gz",
        "sub-10/anat/sub-10_T2w.nii",
        "sub-10/anat/notes.nii",
        "derivatives/other/sub-01/anat/sub-01_ses-1_desc-preproc_T1w.nii.gz",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def test_images_are_found_by_suffix_and_entities(dataset):
    every = find_bids(dataset, "T1w")
    assert [file.path.name for file in every] == [
        "sub-01_ses-1_T1w.nii.gz",
        "sub-01_ses-2_T1w.nii.gz",
        "sub-02_ses-1_T1w.nii.gz",
        "sub-02_ses-1_acq-fast_T1w.nii.gz",
    ]
    first = find_bids(dataset, "T1w", {"ses": "1", "acq": ""})
    assert [file.participant for file in first] == ["sub-01", "sub-02"]
    assert short_names(first) == ["sub-01", "sub-02"]
    assert short_names(every)[-1] == "sub-02_ses-1_acq-fast"
    (derived,) = find_bids(dataset / "derivatives" / "other", "T1w")
    assert derived.entities["desc"] == "preproc"


def test_names_are_taken_apart_and_put_together(dataset):
    (file,) = find_bids(dataset, "bold")
    assert file.entities == {"sub": "01", "ses": "1", "task": "rest", "run": "1"}
    assert file.folder.as_posix() == "sub-01/ses-1/func"
    assert file.named(desc="shape") == "sub-01_ses-1_task-rest_run-1_desc-shape_bold"
    assert parse_name(dataset / "scan.nii") is None
    assert parse_name(dataset / "a-b_c_d.nii") is None


def test_what_is_not_there_is_told(dataset):
    with pytest.raises(ImageError, match=r"no images with suffix FLAIR: it has T1w, T2w, bold"):
        find_bids(dataset, "FLAIR")
    with pytest.raises(ImageError, match=r"no T1w image in .* has ses-9: there are sub-01_ses-1"):
        find_bids(dataset, "T1w", {"ses": "9"})
    with pytest.raises(ImageError, match=r"no bold image .* there are \S+_bold\.nii(\.gz)?$"):
        find_bids(dataset, "bold", {"ses": "9"})
    with pytest.raises(ImageError, match="has no folders sub-"):
        find_bids(dataset / "derivatives", "T1w")
    with pytest.raises(ImageError, match="is no folder"):
        find_bids(dataset / "nowhere", "T1w")
