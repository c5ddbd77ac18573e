"""``anamorph verify``: whole files are described, damaged ones are one line and exit 1."""

import shutil


def test_a_whole_model_is_described(anamorph, picture_model):
    result = anamorph("verify", picture_model, succeeds=True)
    assert "model after 2 iterations, format version 1, checksum right" in result.stdout
    facts = anamorph("verify", picture_model, "--json", succeeds=True).json
    assert facts["files"][0]["has_checksum"]


def test_a_damaged_model_is_one_line(anamorph, picture_model, tmp_path):
    path = shutil.copy(picture_model, tmp_path / "model.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    for command in ("verify", "info", "modes"):
        more = ("-o", tmp_path / "out") if command == "modes" else ()
        error = anamorph(command, path, *more).error
        assert f"{path} is damaged: its checksum is not that of its contents" in error


def test_other_files_are_one_line(anamorph, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert "is not a model or checkpoint" in anamorph("verify", path).error
    assert "does not exist" in anamorph("verify", tmp_path / "nothing").error
    assert "a device" in anamorph("verify", "/dev/null").error
