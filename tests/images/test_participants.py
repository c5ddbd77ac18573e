"""Tables of participants: matched to files by name, and one line for what is wrong."""

import numpy as np
import pytest

from anamorph.images.errors import TableError
from anamorph.images.participants import read_participants

TABLE = "participant_id\tage\tgroup\nsub-01\t31.5\tpatient\nsub-02\tn/a\tcontrol\nsub-010\t7\tx y\n"


@pytest.fixture
def write(tmp_path):
    def write_table(text):
        path = tmp_path / "participants.tsv"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_table


def test_labels_and_covariates(write):
    table = read_participants(write(TABLE))
    assert table.ids == ["sub-01", "sub-02", "sub-010"]
    assert np.array_equal(table.covariate("age"), [31.5, np.nan, 7], equal_nan=True)
    assert table.labels("group").tolist() == ["patient", "control", "x y"]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ("10 n/a 2", [10, None, 2]),
        ("31.5 n/a 7", [31.5, None, 7.0]),
        ("f n/a 7", ["f", None, "7"]),
        ("3 inf 7", ["3", "inf", "7"]),
        ("n/a n/a n/a", [None] * 3),
    ],
)
def test_values_are_numbers_where_all_are(write, texts, expected):
    rows = zip("abc", texts.split(), strict=True)
    text = "\n".join(["participant_id\tx", *map("\t".join, rows)])
    assert read_participants(write(text)).values("x").tolist() == expected


@pytest.mark.parametrize(
    "files",
    [
        ["sub-010_T1w.nii.gz", "sub-01_T1w.nii.gz", "sub-010.nii"],
        ["rc1sub-010.nii", "wsub-01_x.nii", "a/sub-010/anat/T1w.nii"],
    ],
)
def test_rows_follow_files(write, files):
    table = read_participants(write(TABLE)).matched(files)
    assert table.ids == ["sub-010", "sub-01", "sub-010"]
    assert np.array_equal(table.covariate("age"), [7, 31.5, 7])


def test_ids_need_not_be_of_bids(write):
    table = read_participants(write("participant_id\tsmiles\nface1\t0\nface1-b\t1\nface10\t2\n"))
    names = ["face10-a.png", "face1-b.png", "face1_x.png", "face1.png"]
    assert table.matched(names).ids == ["face10", "face1-b", "face1", "face1"]


def test_byte_order_marks_and_blank_lines_are_ignored(write):
    text = b"\xef\xbb\xbfparticipant_id\tage\r\nsub-01\t3\r\n\r\n"
    assert read_participants(write(text)).covariate("age").tolist() == [3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column participant_id"),
        ("age\tgroup\n3\tx\n", "no column participant_id"),
        ("participant_id\tage\tage\n", "two columns of one name"),
        ("participant_id\tage\na\t1\na\t2\n", "participant_id a twice"),
        ("participant_id\tage\n\t1\n", "no participant_id in row 1"),
        ("participant_id\tage\na\n", "line 2, has 1 values, and the header names 2"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(write, text, message):
    with pytest.raises(TableError, match=message) as error:
        read_participants(write(text))
    assert "\n" not in str(error.value)
    assert "participants.tsv" in str(error.value)


def test_what_is_not_there_is_said(write, tmp_path):
    table = read_participants(write(TABLE))
    with pytest.raises(TableError, match=r"no participant_id for x/sub-03\.nii"):
        table.matched(["x/sub-03.nii"])
    with pytest.raises(TableError, match="no column 'weight': it has age, group"):
        table.covariate("weight")
    with pytest.raises(TableError, match="group of sub-01 must be a number or n/a, got 'patient'"):
        table.covariate("group")
    with pytest.raises(TableError, match="sub-02 has no age"):
        table.labels("age")
    with pytest.raises(TableError, match="does not exist"):
        read_participants(tmp_path / "nowhere.tsv")
