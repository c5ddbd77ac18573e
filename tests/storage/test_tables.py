"""Tables of latents: what is written is read, to the last bit."""

import numpy as np
import pytest

from anamorph.images.errors import TableError
from anamorph.storage.tables import read_latents, write_latents, write_table
from tests.conftest import one_line


def test_latents_survive_to_the_last_bit(tmp_path):
    latents = np.random.default_rng(0).standard_normal((5, 3)) ** 9
    names = ["a", "b-1", "sub-01/anat", "é", "two words"]
    write_latents(tmp_path / "z.tsv", names, latents, {"log_evidence": [1.5] * 5})
    read_names, read = read_latents(tmp_path / "z.tsv", 3)
    assert read_names == names
    assert np.array_equal(read, latents)
    header = (tmp_path / "z.tsv").read_text().splitlines()[0]
    assert header == "participant_id\tz1\tz2\tz3\tlog_evidence"


@pytest.mark.parametrize("n_latents", [2, 4])
def test_another_number_of_latents_is_explained(tmp_path, n_latents):
    write_latents(tmp_path / "z.tsv", ["a"], np.ones((1, 3)))
    with pytest.raises(TableError, match=rf"z1 to z{n_latents}, .* and has 3"):
        read_latents(tmp_path / "z.tsv", n_latents)


def test_missing_numbers_and_rows_are_explained(tmp_path):
    path = tmp_path / "z.tsv"
    write_table(path, ["a", "b"], {"z1": [1.0, "n/a"]})
    with pytest.raises(TableError, match="a latent of b is missing"):
        read_latents(path, 1)
    write_table(path, [], {"z1": []})
    with pytest.raises(TableError, match="has no rows"):
        read_latents(path, 1)


@pytest.mark.parametrize(
    "name",
    ["a\tb", "a\nb", "a\rb", "a\x00b", "a\udcffb", "a\x85b", "a\u2028b", " a", "a ", "", "n/a"],
)
def test_names_that_a_table_could_not_give_back_are_refused(tmp_path, name):
    path = tmp_path / "table.tsv"
    with pytest.raises(TableError, match="rename the file") as error:
        write_latents(path, ["x", name], np.zeros((2, 1)))
    one_line(error)
    assert not path.exists()


@pytest.mark.parametrize(
    "name", ["a b", "ä", "名前", "a,b", 'a"b', "a'b", "-", "#a", "a\u00adb", "🙂"]
)
def test_other_names_are_given_back(tmp_path, name):
    path = tmp_path / "table.tsv"
    write_latents(path, [name, "x"], np.ones((2, 1)))
    assert read_latents(path, 1)[0] == [name, "x"]


def test_a_table_with_the_poses_of_another_model_is_refused(tmp_path):
    path, poses = tmp_path / "z.tsv", {"shift1": [0.5], "shift2": [0.1], "age": [40]}
    write_latents(path, ["a"], np.ones((1, 2)), poses)
    for names, told in (((), "none"), (("shift1", "shift2", "turn12"), "shift1, shift2, turn12")):
        with pytest.raises(TableError, match=f"the poses shift1, shift2, .* has {told}: make it"):
            read_latents(path, 2, names)
    assert read_latents(path, 2, ("shift1", "shift2"))[0] == ["a"]
    write_latents(path, ["a"], np.ones((1, 2)))  # images that lie as the template does
    assert read_latents(path, 2, ("shift1", "shift2"))[0] == ["a"]
