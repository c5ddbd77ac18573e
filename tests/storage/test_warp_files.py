"""Warps in the formats of other tools say what `pull` does, on an oblique grid."""

import nibabel as nib
import numpy as np
import pytest
from scipy.ndimage import gaussian_filter, map_coordinates

from anamorph.geometry import pull
from anamorph.images.grid import Grid
from anamorph.storage import WriteError
from anamorph.storage.warps import WARP_FORMATS, write_warp

SPACE = (14, 12, 10)
INNER = (slice(3, -3),) * 3  # where neither grid nor displacements end


def oblique(sign=1.0):
    """Return an affine with three angles and three sizes, of a given sign of its determinant."""
    a, b, c = 0.3, -0.2, 0.5
    turn_x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    turn_y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    turn_z = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
    affine = np.eye(4)
    affine[:3, :3] = turn_x @ turn_y @ turn_z @ np.diag([sign * 1.5, 2.0, 2.5])
    affine[:3, 3] = 7, -11, 5
    return affine


@pytest.fixture(scope="module")
def fields():
    """Return an image and a displacement, smooth, and what `pull` makes of them."""
    rng = np.random.default_rng(4)
    image = gaussian_filter(rng.standard_normal(SPACE), 1.5, mode="wrap").astype(np.float32)
    image /= np.abs(image).max()
    noise = rng.standard_normal((3, *SPACE))
    warp = np.stack([gaussian_filter(part, 2.0, mode="wrap") for part in noise])
    warp = (1.5 * warp / np.abs(warp).max()).astype(np.float32)
    return image, warp, pull(image[None], warp)[0]


@pytest.fixture(scope="module", params=[1.0, -1.0], ids=["right", "left"])
def grid(request):
    return Grid(SPACE, oblique(request.param))


def written(folder, fields, grid, kind, **options):
    path = folder / f"warp{WARP_FORMATS[kind]}"
    write_warp(path, fields[1], grid, kind, **options)
    return path


def image_file(folder, fields, grid):
    path = folder / "image.nii.gz"
    nib.save(nib.Nifti1Image(fields[0], grid.affine), path)
    return path


def sampled(image, voxels):
    """Return an image at voxels (..., 3), interpolated linearly."""
    return map_coordinates(image.astype(np.float64), np.moveaxis(voxels, -1, 0), order=1)


def agrees(result, fields):
    return np.abs(result - fields[2])[INNER].max() < 1e-5


def test_simpleitk_does_what_pull_does(tmp_path, fields, grid):
    sitk = pytest.importorskip("SimpleITK")
    image = sitk.ReadImage(str(image_file(tmp_path, fields, grid)), sitk.sitkFloat64)
    field = sitk.ReadImage(str(written(tmp_path, fields, grid, "itk")), sitk.sitkVectorFloat64)
    assert field.GetDimension() == 3
    assert field.GetNumberOfComponentsPerPixel() == 3
    result = sitk.Resample(image, image, sitk.DisplacementFieldTransform(field))
    assert agrees(sitk.GetArrayFromImage(result).transpose(), fields)


def test_ants_does_what_pull_does(tmp_path, fields, grid):
    ants = pytest.importorskip("ants")
    path = str(image_file(tmp_path, fields, grid))
    image = ants.image_read(path, pixeltype="double")
    warp = [str(written(tmp_path, fields, grid, "itk"))]
    result = ants.apply_transforms(image, image, warp, interpolator="linear")
    assert agrees(result.numpy(), fields)


@pytest.mark.parametrize("kind", ["itk", "x5"])
def test_nitransforms_does_what_pull_does(tmp_path, fields, grid, kind):
    nonlinear = pytest.importorskip("nitransforms.nonlinear")
    pytest.importorskip("h5py")
    path = written(tmp_path, fields, grid, kind)
    transform = nonlinear.DenseFieldTransform.from_filename(path, fmt=kind)
    places = np.moveaxis(np.indices(SPACE), 0, -1).reshape(-1, 3) @ grid.affine[:3, :3].T
    targets = transform.map(places + grid.affine[:3, 3])
    back = np.linalg.inv(grid.affine)
    voxels = (targets @ back[:3, :3].T + back[:3, 3]).reshape(*SPACE, 3)
    assert agrees(sampled(fields[0], voxels), fields)


def test_nitransforms_reads_fsl_warps_of_grids_along_the_axes(tmp_path, fields):
    nonlinear = pytest.importorskip("nitransforms.nonlinear")
    affine = np.diag([1.5, 2.0, 2.5, 1.0])  # it knows no other
    path = written(tmp_path, fields, Grid(SPACE, affine), "fsl")
    transform = nonlinear.DenseFieldTransform.from_filename(path, fmt="fsl")
    places = np.moveaxis(np.indices(SPACE), 0, -1).reshape(-1, 3) * affine.diagonal()[:3]
    voxels = (transform.map(places) / affine.diagonal()[:3]).reshape(*SPACE, 3)
    assert agrees(sampled(fields[0], voxels), fields)


def test_warps_for_itk_have_the_shape_and_the_code_of_vectors(tmp_path, fields, grid):
    image = nib.load(written(tmp_path, fields, grid, "itk"))
    assert image.shape == (*SPACE, 1, 3)
    assert image.header["intent_code"] == 1007
    vectors = np.einsum("ij,j...->...i", grid.affine[:3, :3], fields[1].astype(np.float64))
    assert np.allclose(image.get_fdata()[..., 0, :], vectors * [-1, -1, 1], atol=1e-5)


def test_warps_for_spm_hold_coordinates_in_mm(tmp_path, fields, grid):
    image = nib.load(written(tmp_path, fields, grid, "spm"))
    assert image.shape == (*SPACE, 1, 3)
    assert image.header["intent_code"] == 1007
    back = np.linalg.inv(image.affine)
    voxels = image.get_fdata()[..., 0, :] @ back[:3, :3].T + back[:3, 3]
    assert agrees(sampled(fields[0], voxels), fields)


def test_warps_for_fsl_are_relative_in_scaled_and_reversed_voxels(tmp_path, fields, grid):
    """As documented for FNIRT: x is reversed where the affine has a positive determinant."""
    image = nib.load(written(tmp_path, fields, grid, "fsl"))
    assert image.shape == (*SPACE, 3)
    assert image.header["intent_code"] == 2006
    sizes = np.array(image.header.get_zooms()[:3], np.float64)
    voxels = np.moveaxis(np.indices(SPACE), 0, -1).astype(np.float64)
    is_reversed = np.linalg.det(image.affine[:3, :3]) > 0
    if is_reversed:
        voxels[..., 0] = SPACE[0] - 1 - voxels[..., 0]
    targets = (voxels * sizes + image.get_fdata()) / sizes
    if is_reversed:
        targets[..., 0] = SPACE[0] - 1 - targets[..., 0]
    assert agrees(sampled(fields[0], targets), fields)


def test_fsl_knows_the_grid_of_the_image(tmp_path, fields, grid):
    """An image of another grid is found by the same world."""
    source = Grid((20, 18, 16), grid.affine @ np.diag([0.8, 0.8, 0.8, 1]))
    shift = nib.load(written(tmp_path, fields, grid, "fsl", source=source)).get_fdata()
    sizes, spacing = (np.linalg.norm(g.affine[:3, :3], axis=0) for g in (source, grid))
    here = np.array([7, 5, 4.0])
    is_reversed = np.linalg.det(grid.affine[:3, :3]) > 0
    place = here.copy()
    if is_reversed:
        place[0] = SPACE[0] - 1 - place[0]
    there = (place * spacing + shift[7, 5, 4]) / sizes
    if is_reversed:
        there[0] = source.space[0] - 1 - there[0]
    expected = (here + fields[1][:, 7, 5, 4]) / 0.8
    assert np.allclose(there, expected, atol=1e-4)


def test_affines_are_folded_in_before_and_after(tmp_path, fields, grid):
    def targets(**options):
        image = nib.load(written(tmp_path, fields, grid, "spm", **options))
        return image.get_fdata()[..., 0, :]

    turn = oblique() / 2
    turn[3] = 0, 0, 0, 1
    plain = targets()
    assert np.allclose(targets(after=turn), plain @ turn[:3, :3].T + turn[:3, 3], atol=1e-4)
    one_voxel = np.eye(4)
    one_voxel[:3, 3] = grid.affine[:3, 0]
    assert np.allclose(targets(before=one_voxel)[:-1], plain[1:], atol=1e-4)


def test_a_warp_is_sampled_on_the_grid_of_an_image(tmp_path, fields, grid):
    """Every other voxel of a grid twice as fine is a voxel of the warp's."""
    finer = Grid((27, 23, 19), grid.affine @ np.diag([0.5, 0.5, 0.5, 1]))
    image = nib.load(written(tmp_path, fields, grid, "itk", reference=finer))
    found = image.get_fdata()
    assert found.shape == (27, 23, 19, 1, 3)
    assert np.allclose(image.affine, finer.affine, atol=1e-5)
    plain = nib.load(written(tmp_path, fields, grid, "itk")).get_fdata()
    assert np.allclose(found[::2, ::2, ::2], plain, atol=1e-5)


def test_a_plane_is_a_volume_of_one_slice(tmp_path):
    warp = np.zeros((2, 6, 5), np.float32)
    warp[0], warp[1] = 0.5, -0.25
    write_warp(tmp_path / "plane.nii.gz", warp, Grid((6, 5), oblique()), "itk")
    image = nib.load(tmp_path / "plane.nii.gz")
    assert image.shape == (6, 5, 1, 1, 3)
    vector = oblique()[:3, :3] @ [0.5, -0.25, 0] * [-1, -1, 1]
    assert np.allclose(image.get_fdata(), vector, atol=1e-5)


@pytest.fixture(scope="module")
def plane():
    """Return a smooth image of a plane, a displacement, what `pull` makes of them, and the grid."""
    rng = np.random.default_rng(5)
    image = gaussian_filter(rng.standard_normal((16, 14)), 1.5, mode="wrap").astype(np.float32)
    warp = np.stack([gaussian_filter(rng.standard_normal((16, 14)), 2.0) for _ in range(2)])
    warp = (1.5 * warp / np.abs(warp).max()).astype(np.float32)
    return image, warp, pull(image[None], warp)[0], Grid((16, 14), np.diag([1.5, 2.0, 1.0, 1.0]))


def test_ants_takes_the_warp_of_a_plane(tmp_path, plane):
    ants = pytest.importorskip("ants")
    image, warp, expected, grid = plane
    path = tmp_path / "plane.nii.gz"
    write_warp(path, warp, grid, "itk")
    file = image_file(tmp_path, (image,), grid)
    moving = ants.image_read(str(file), pixeltype="double")
    result = ants.apply_transforms(moving, moving, [str(path)], interpolator="linear").numpy()
    assert np.abs(result - expected)[INNER[:2]].max() < 1e-5


def test_simpleitk_takes_two_components_of_the_warp_of_a_plane(tmp_path, plane):
    """As docs/template-space.md shows it; it refuses all three."""
    sitk = pytest.importorskip("SimpleITK")
    image, warp, expected, grid = plane
    path = tmp_path / "plane.nii.gz"
    write_warp(path, warp, grid, "itk")
    field = sitk.ReadImage(str(path))
    with pytest.raises(RuntimeError, match="Expected number of elements"):
        sitk.DisplacementFieldTransform(sitk.Cast(field, sitk.sitkVectorFloat64))
    parts = [sitk.VectorIndexSelectionCast(field, i, sitk.sitkFloat64) for i in range(2)]
    moving = sitk.ReadImage(str(image_file(tmp_path, (image,), grid)), sitk.sitkFloat64)
    transform = sitk.DisplacementFieldTransform(sitk.Compose(parts))
    result = sitk.GetArrayFromImage(sitk.Resample(moving, moving, transform)).transpose()
    assert np.abs(result - expected)[INNER[:2]].max() < 1e-5


def test_grids_without_affine_have_voxels_for_mm(tmp_path, fields):
    image = nib.load(written(tmp_path, fields, Grid(SPACE), "spm"))
    assert np.array_equal(image.affine, np.eye(4))
    expected = np.indices(SPACE) + fields[1]
    assert np.allclose(image.get_fdata()[..., 0, :], np.moveaxis(expected, 0, -1), atol=1e-5)


def test_x5_without_h5py_says_what_to_install(tmp_path, fields, grid, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(WriteError, match=r"anamorph\[x5\]"):
        written(tmp_path, fields, grid, "x5")
    assert not any(tmp_path.iterdir())
