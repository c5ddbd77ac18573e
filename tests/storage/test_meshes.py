"""Meshes and landmarks in files come back as they were, and damaged ones are told."""

import struct

import numpy as np
import pytest

from anamorph.images.errors import ImageError
from anamorph.storage.meshes import Mesh, read_mesh, write_mesh
from tests.conftest import one_line

CUBE = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
FACES = np.array([
    [0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1],
    [2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3],
])  # fmt: skip


@pytest.fixture
def mesh():
    return Mesh(CUBE * [2, 3, 0.5] + [-100.25, 7 / 3, 0.125], FACES)


def test_a_box_is_closed_and_has_its_volume(mesh):
    assert mesh.is_closed
    assert np.isclose(mesh.volume, 3)
    assert not Mesh(mesh.points, FACES[1:]).is_closed
    assert not Mesh(mesh.points, np.concatenate([FACES[1:], FACES[:1, ::-1]])).is_closed
    assert not Mesh(mesh.points).is_closed


@pytest.mark.parametrize(("suffix", "tolerance"), [(".gii", 1e-5), (".vtk", 0), (".ply", 0)])
def test_meshes_come_back(mesh, tmp_path, suffix, tolerance):
    path = tmp_path / f"box{suffix}"
    write_mesh(path, mesh)
    back = read_mesh(path)
    assert np.abs(back.points - mesh.points).max() <= tolerance
    assert np.array_equal(back.faces, mesh.faces)
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", [".gii", ".vtk", ".ply"])
def test_points_without_triangles_come_back(mesh, tmp_path, suffix):
    write_mesh(tmp_path / f"points{suffix}", Mesh(mesh.points))
    back = read_mesh(tmp_path / f"points{suffix}")
    assert np.allclose(back.points, mesh.points, atol=1e-5)
    assert len(back.faces) == 0


def test_landmarks_keep_their_names_and_digits(tmp_path):
    text = 'Name,X,y,z,side\nnose,1.5,-2,3e-3,\n"a, b",0.1,0.2,0.3,left\n'
    (tmp_path / "marks.csv").write_text(text)
    marks = read_mesh(tmp_path / "marks.csv")
    assert marks.points.tolist() == [[1.5, -2, 0.003], [0.1, 0.2, 0.3]]
    write_mesh(tmp_path / "again.csv", marks)
    again = read_mesh(tmp_path / "again.csv")
    assert again.columns == marks.columns == {"Name": ["nose", "a, b"], "side": ["", "left"]}
    assert np.array_equal(again.points, marks.points)


def test_landmarks_of_pictures_need_no_z(tmp_path):
    (tmp_path / "marks.csv").write_text("x\ty\n1\t2\n")
    assert read_mesh(tmp_path / "marks.csv").points.tolist() == [[1, 2, 0]]


def test_text_of_other_programs_is_read(tmp_path):
    ply = (
        "ply\nformat ascii 1.0\nelement vertex 3\nproperty float x\nproperty float y\n"
        "property float z\nproperty uchar red\nelement face 1\n"
        "property list uchar int vertex_indices\nend_header\n0 0 0 9\n1 0 0 9\n0 1 0 9\n3 0 1 2\n"
    )
    (tmp_path / "a.ply").write_text(ply)
    vtk = (
        "# vtk DataFile Version 5.1\nx\nASCII\nDATASET POLYDATA\nPOINTS 3 float\n"
        "0 0 0 1 0 0\n0 1 0\nPOLYGONS 2 3\nOFFSETS vtktypeint64\n0 3\n"
        "CONNECTIVITY vtktypeint64\n0 1 2\n"
    )
    (tmp_path / "a.vtk").write_text(vtk)
    for name in ("a.ply", "a.vtk"):
        mesh = read_mesh(tmp_path / name)
        assert mesh.points.tolist() == [[0, 0, 0], [1, 0, 0], [0, 1, 0]]
        assert mesh.faces.tolist() == [[0, 1, 2]]


def test_stl_has_all_triangles_with_their_normals(mesh, tmp_path):
    write_mesh(tmp_path / "box.stl", mesh)
    content = (tmp_path / "box.stl").read_bytes()
    assert struct.unpack("<I", content[80:84]) == (12,)
    assert len(content) == 84 + 12 * 50
    numbers = np.array(struct.unpack("<12f", content[84:132]))
    assert np.allclose(numbers[3:].reshape(3, 3), mesh.points[FACES[0]], atol=1e-4)
    assert np.allclose(numbers[:3], [-1, 0, 0])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.stl", b"solid", "must be a mesh"),
        ("a.ply", b"hello", "not a PLY"),
        ("a.ply", b"ply\nformat ascii 1.0\nelement vertex 2\n", "no end of its header"),
        ("a.vtk", b"# vtk DataFile Version 3.0\nx\nBINARY\nDATASET POLYDATA\n", "binary"),
        ("a.vtk", b"# vtk DataFile Version 3.0\nx\nASCII\nDATASET STRUCTURED_POINTS\n", "POLYDATA"),
        ("a.vtk", b"# vtk DataFile Version 3.0\nx\nASCII\nDATASET POLYDATA\nPOINTS 3 float\n1 2",
         "cannot be read"),
        ("a.gii", b"<xml", "cannot be read"),
        ("a.csv", b"a,b\n1,2\n", "columns x, y"),
        ("a.csv", b"x,y,z\n1,2\n", "2 columns in line 2"),
        ("a.csv", b"x,y,z\n1,2,inf\n", "finite"),
    ],
)  # fmt: skip
def test_damaged_files_are_told_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ImageError, match=message) as error:
        read_mesh(tmp_path / name)
    assert name in one_line(error)


def test_squares_are_refused(tmp_path):
    text = "# vtk DataFile Version 3.0\nx\nASCII\nDATASET POLYDATA\nPOINTS 4 float\n"
    text += "0 0 0 1 0 0 1 1 0 0 1 0\nPOLYGONS 1 5\n4 0 1 2 3\n"
    (tmp_path / "a.vtk").write_text(text)
    with pytest.raises(ImageError, match="triangulate"):
        read_mesh(tmp_path / "a.vtk")


def test_other_suffixes_are_refused(mesh, tmp_path):
    with pytest.raises(ImageError, match="must end with one of"):
        write_mesh(tmp_path / "box.obj", mesh)
