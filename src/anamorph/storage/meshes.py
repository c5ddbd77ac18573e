"""Points and triangles in files: GIFTI, VTK, PLY and STL, and landmarks in CSV.

Coordinates are x, y, z in the world of the files. VTK is the legacy format in text, PLY is text or
binary, STL is binary and only written: it repeats every vertex for each of its triangles.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from nibabel.gifti.gifti import GiftiDataArray, GiftiImage
from numpy.typing import NDArray

from anamorph.images.errors import ImageError, short_reason
from anamorph.storage.replace import replacing

_POINTSET, _TRIANGLE = "NIFTI_INTENT_POINTSET", "NIFTI_INTENT_TRIANGLE"
_AXES = ("x", "y", "z")
_PLY_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2",
    "ushort": "u2", "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4",
    "float": "f4", "float32": "f4", "double": "f8", "float64": "f8",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Mesh:
    """Points in the world, and triangles between them.

    Attributes
    ----------
    points : array of shape (n, 3)
        x, y and z: mm where images have an affine, else voxels.
    faces : array of shape (m, 3)
        Indices of the corners of each triangle; none by default, as of landmarks.
    columns : dict of n strings each
        What else a table of landmarks says of each point, e.g. its name; nothing by default.
    """

    points: NDArray[np.float64]
    faces: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 3), np.int64))
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        points, faces = np.asarray(self.points, np.float64), np.asarray(self.faces, np.int64)
        if points.ndim != 2 or points.shape[1] != 3:
            raise ValueError(f"points must have shape (n, 3), got {points.shape}")
        if not np.isfinite(points).all():
            raise ValueError("points must be finite, got NaN or infinity")
        if faces.ndim != 2 or faces.shape[1] != 3:
            raise ValueError(f"faces must have shape (m, 3), got {faces.shape}")
        if faces.size and not 0 <= faces.min() <= faces.max() < len(points):
            raise ValueError(f"faces must be indices from 0 to {len(points) - 1}")
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "faces", faces)

    def moved_to(self, points: NDArray[np.floating]) -> Mesh:
        """Return the same triangles between other points."""
        return replace(self, points=np.asarray(points, np.float64))

    @property
    def volume(self) -> float:
        """What the triangles enclose, by the divergence theorem; positive if they face outward."""
        a, b, c = (self.points[self.faces[:, k]] for k in range(3))
        return float((a * np.cross(b, c)).sum() / 6)

    @property
    def is_closed(self) -> bool:
        """Whether every edge belongs to two triangles, which go along it in opposite directions."""
        edges = np.concatenate([self.faces[:, [k, (k + 1) % 3]] for k in range(3)])
        there, counts = np.unique(edges, axis=0, return_counts=True)
        back = np.unique(edges[:, ::-1], axis=0)
        return bool(len(edges) and (counts == 1).all() and np.array_equal(there, back))


def is_mesh(value: object) -> bool:
    """Tell whether a value is a mesh, or a list of meshes."""
    if isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, Mesh)


def as_meshes(value: Any) -> list[Mesh]:
    """Return one mesh, or a list of them, as a list."""
    return [value] if isinstance(value, Mesh) else list(value)


def read_mesh(path: str | os.PathLike[str]) -> Mesh:
    """Return the points of a file, and its triangles if it has some.

    Parameters
    ----------
    path : path
        Its suffix, .gii, .vtk, .ply or .csv, tells the format.

    Raises
    ------
    ImageError
        If the file cannot be read, or holds something else.
    """
    path = Path(path)
    reader = _READERS.get(_suffix(path))
    if reader is None:
        raise ImageError(f"{path} must be a mesh or landmarks: {', '.join(_READERS)}")
    try:
        return reader(path)
    except ImageError:
        raise
    except Exception as error:  # parsers of three formats, which files of any kind may reach
        raise ImageError(f"{path} cannot be read: {short_reason(error)}") from None


def write_mesh(path: str | os.PathLike[str], mesh: Mesh) -> None:
    """Write a mesh, completely or not at all.

    Parameters
    ----------
    path : path
        Its suffix, .gii, .vtk, .ply, .stl or .csv (points alone), tells the format.
    mesh : Mesh
    """
    path = Path(path)
    check_mesh_suffix(path)
    content = _WRITERS[_suffix(path)](mesh)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def check_mesh_suffix(path: Path, *, closed: bool = False) -> None:
    """Raise an ImageError if a suffix is none that meshes (with triangles) are written to."""
    accepted = [suffix for suffix in _WRITERS if not (closed and suffix == ".csv")]
    if _suffix(path) not in accepted:
        raise ImageError(f"{path} must end with one of {', '.join(accepted)}")


def _suffix(path: Path) -> str:
    return path.suffix.lower()


# ---- GIFTI


def _read_gifti(path: Path) -> Mesh:
    image = GiftiImage.from_filename(path)
    points = image.agg_data("pointset")
    faces = image.agg_data("triangle")
    if not isinstance(points, np.ndarray):
        raise ImageError(f"{path} has no points: give a surface, e.g. lh.pial.surf.gii")
    return Mesh(points, faces if isinstance(faces, np.ndarray) else np.empty((0, 3), np.int64))


def _write_gifti(mesh: Mesh) -> bytes:
    arrays = [(mesh.points.astype(np.float32), _POINTSET, "NIFTI_TYPE_FLOAT32")]
    if len(mesh.faces):
        arrays.append((mesh.faces.astype(np.int32), _TRIANGLE, "NIFTI_TYPE_INT32"))
    darrays = [GiftiDataArray(data, intent=intent, datatype=kind) for data, intent, kind in arrays]
    content: bytes = GiftiImage(darrays=darrays).to_bytes()
    return content


# ---- VTK, legacy


def _read_vtk(path: Path) -> Mesh:
    header, _, rest = path.read_bytes().partition(b"DATASET")
    lines = header.decode("latin-1").splitlines()
    if not lines or not lines[0].startswith("# vtk DataFile"):
        raise ImageError(f"{path} is not a legacy VTK file: save it as .vtk, or as PLY")
    if "ASCII" not in (line.strip().upper() for line in lines):
        raise ImageError(f"{path} is binary: save it as text (ASCII), or as PLY")
    words = rest.decode("latin-1").split()
    if not words or words[0].upper() != "POLYDATA":
        raise ImageError(f"{path} holds {words[0] if words else 'nothing'}: save it as POLYDATA")
    at = words.index("POINTS")
    n_points = int(words[at + 1])
    points = np.array(words[at + 3 : at + 3 + 3 * n_points], np.float64).reshape(-1, 3)
    faces = np.empty((0, 3), np.int64)
    if "POLYGONS" in words:
        at = words.index("POLYGONS")
        first, n_numbers = int(words[at + 1]), int(words[at + 2])
        if words[at + 3].upper() == "OFFSETS":  # version 5: offsets, then indices
            begin = at + 5
            offsets = np.array(words[begin : begin + first], np.int64)
            begin += first + 2
            indices = np.array(words[begin : begin + n_numbers], np.int64)
            sizes = np.diff(offsets)
        else:
            table = np.array(words[at + 3 : at + 3 + n_numbers], np.int64)
            _check_triangles(path, table[::4] if len(table) % 4 == 0 else table[:1])
            sizes, indices = table[::4], table.reshape(-1, 4)[:, 1:].ravel()
        _check_triangles(path, sizes)
        faces = indices.reshape(-1, 3)
    return Mesh(points, faces)


def _check_triangles(path: Path, sizes: NDArray[np.integer]) -> None:
    if len(sizes) == 0 or not (sizes == 3).all():
        raise ImageError(f"{path} has polygons that are no triangles: triangulate them first")


def _write_vtk(mesh: Mesh) -> bytes:
    lines = ["# vtk DataFile Version 3.0", "anamorph", "ASCII", "DATASET POLYDATA"]
    lines.append(f"POINTS {len(mesh.points)} double")
    lines += [" ".join(map(repr, point)) for point in mesh.points.tolist()]
    if len(mesh.faces):
        lines.append(f"POLYGONS {len(mesh.faces)} {4 * len(mesh.faces)}")
        lines += ["3 " + " ".join(map(str, face)) for face in mesh.faces.tolist()]
    else:
        lines.append(f"VERTICES {len(mesh.points)} {2 * len(mesh.points)}")
        lines += [f"1 {n}" for n in range(len(mesh.points))]
    return ("\n".join(lines) + "\n").encode()


# ---- PLY


def _read_ply(path: Path) -> Mesh:
    with path.open("rb") as stream:
        kind, elements = _read_ply_header(path, stream)
        points, faces = np.empty((0, 3)), np.empty((0, 3), np.int64)
        for name, count, properties in elements:
            is_list = any(len(types) == 2 for types in properties.values())
            rows = _read_ply_rows(path, stream, kind, count, properties, is_list)
            if name == "vertex":
                points = np.stack([rows[axis] for axis in _AXES], axis=1)
            elif name == "face":
                faces = rows["list"]
    return Mesh(points, faces)


def _read_ply_header(path: Path, stream: Any) -> tuple[str, list[tuple[str, int, dict[str, Any]]]]:
    if stream.readline().strip() != b"ply":
        raise ImageError(f"{path} is not a PLY file")
    kind = ""
    elements: list[tuple[str, int, dict[str, Any]]] = []
    for raw in iter(stream.readline, b""):
        words = raw.decode("latin-1").split()
        if words[:1] == ["format"]:
            kind = words[1]
        elif words[:1] == ["element"]:
            elements.append((words[1], int(words[2]), {}))
        elif words[:1] == ["property"]:
            elements[-1][2][words[-1]] = words[2:4] if words[1] == "list" else words[1:2]
        elif words[:1] == ["end_header"]:
            return kind, elements
    raise ImageError(f"{path} has no end of its header")


def _read_ply_rows(
    path: Path, stream: Any, kind: str, count: int, properties: dict[str, Any], is_list: bool
) -> Any:
    """Return the rows of an element: columns by name, or triangles as "list"."""
    if is_list and len(properties) > 1:
        raise ImageError(f"{path} has faces with further properties: save only the triangles")
    if kind == "ascii":
        lines = [stream.readline().split() for _ in range(count)]
        table = np.array(lines, np.float64).reshape(count, -1)
        if is_list:
            _check_triangles(path, table[:, 0].astype(np.int64) if count else np.full(1, 3))
            return {"list": table[:, 1:].astype(np.int64).reshape(-1, 3)}
        return dict(zip(properties, table.T, strict=True))
    order = ">" if kind == "binary_big_endian" else "<"
    if is_list:
        size, index = (order + _PLY_TYPES[name] for name in next(iter(properties.values())))
        layout = np.dtype([("size", size), ("list", index, 3)])
    else:
        layout = np.dtype(
            [(name, order + _PLY_TYPES[kinds[0]]) for name, kinds in properties.items()]
        )
    rows = np.frombuffer(stream.read(count * layout.itemsize), layout, count)
    if is_list:
        _check_triangles(path, rows["size"] if count else np.full(1, 3))
    return rows


def _write_ply(mesh: Mesh) -> bytes:
    header = [
        "ply", "format binary_little_endian 1.0", "comment anamorph",
        f"element vertex {len(mesh.points)}", *(f"property double {axis}" for axis in _AXES),
        f"element face {len(mesh.faces)}", "property list uchar int vertex_indices", "end_header",
    ]  # fmt: skip
    faces = np.empty(len(mesh.faces), [("size", "u1"), ("list", "<i4", 3)])
    faces["size"], faces["list"] = 3, mesh.faces
    return (
        "\n".join(header).encode() + b"\n" + mesh.points.astype("<f8").tobytes() + faces.tobytes()
    )


# ---- STL and CSV


def _write_stl(mesh: Mesh) -> bytes:
    corners = mesh.points[mesh.faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    table = np.zeros(len(corners), [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("n", "<u2")])
    table["normal"], table["corners"] = normals / np.maximum(lengths, 1e-30), corners
    return b"anamorph".ljust(80) + np.uint32(len(corners)).tobytes() + table.tobytes()


def _read_csv(path: Path) -> Mesh:
    text = path.read_text(encoding="utf-8-sig")
    header = text.split("\n", 1)[0]
    reader = csv.reader(io.StringIO(text), delimiter="\t" if "\t" in header else ",")
    rows = [row for row in reader if row]
    names = [name.strip().lower() for name in rows[0]] if rows else []
    if "x" not in names or "y" not in names:
        raise ImageError(f"{path} must have columns x, y and z (x and y of a plane) by these names")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(names):
            raise ImageError(f"{path} has {len(row)} columns in line {number}, not {len(names)}")
    columns = dict(zip(names, zip(*rows[1:], strict=True), strict=True)) if len(rows) > 1 else {}
    zeros = ["0"] * (len(rows) - 1)
    points = [[float(value) for value in columns.get(axis, zeros)] for axis in _AXES]
    others = {
        written: list(columns.get(name, ()))
        for written, name in zip(rows[0], names, strict=True)
        if name not in _AXES
    }
    return Mesh(np.array(points, np.float64).reshape(3, -1).T, columns=others)


def _write_csv(mesh: Mesh) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*mesh.columns, *_AXES])
    others = (
        zip(*mesh.columns.values(), strict=True) if mesh.columns else iter([()] * len(mesh.points))
    )
    for row, point in zip(others, mesh.points.tolist(), strict=True):
        writer.writerow([*row, *map(repr, point)])
    return text.getvalue().encode()


_READERS = {".gii": _read_gifti, ".vtk": _read_vtk, ".ply": _read_ply, ".csv": _read_csv}
_WRITERS = {
    ".gii": _write_gifti, ".vtk": _write_vtk, ".ply": _write_ply, ".stl": _write_stl,
    ".csv": _write_csv,
}  # fmt: skip

#: Suffixes of files that `read_mesh` reads.
MESH_SUFFIXES = tuple(_READERS)
