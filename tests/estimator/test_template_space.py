"""Images, label maps, points and meshes in the space of the template, and back."""

import nibabel as nib
import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.estimator.template_space import surface_of
from anamorph.geometry import jacobian_determinant, pull
from anamorph.images.grid import Grid
from anamorph.images.world import World
from anamorph.model.checks import ArgumentError
from anamorph.model.warping import modulated, volume_changes, warped
from anamorph.storage.meshes import Mesh
from tests.device.conftest import gpu  # noqa: F401  the fixture
from tests.storage.test_warp_files import oblique

SPACES = {"plane": (20, 18), "volume": (14, 13, 12)}
STIFF = (0.001, 0.02, 0.2, 0.02, 0.02)


def ellipsoids(space, n_images=8, seed=0):
    """Return images of ellipsoids of several sizes, from 0 to 1, in the middle of the grid."""
    generator = np.random.default_rng(seed)
    axes = np.meshgrid(*(np.linspace(-1, 1, length) for length in space), indexing="ij")
    radii = generator.uniform(0.4, 0.75, (n_images, len(space)))
    distances = [
        np.sqrt(sum((x / r) ** 2 for x, r in zip(axes, some, strict=True))) for some in radii
    ]
    return (1 / (1 + np.exp(6 * (np.array(distances) - 1)))).astype(np.float32)


@pytest.fixture(scope="module", params=list(SPACES))
def fitted(request):
    images = ellipsoids(SPACES[request.param])
    model = ShapeAppearanceModel(
        3, latents="shape", likelihood="bernoulli", n_iter=5, shape_penalty=STIFF, n_threads=1
    )
    return model.fit(images), images


def test_images_are_alike_in_the_template(fitted):
    model, images = fitted
    z = model.transform(images)
    found = model.to_template(images)
    assert found.shape == images.shape
    assert np.array_equal(found, model.to_template(images, z))
    assert found.var(axis=0).mean() < 0.3 * images.var(axis=0).mean()
    by_hand = pull(images[:, None], model.displacement(z, inverse=True))[:, 0]
    assert np.allclose(found, by_hand, atol=1e-6)
    returned = model.from_template(found, z)
    # What is lost is what two interpolations smooth away.
    assert np.abs(returned - images).mean() < 0.4 * np.abs(images - images.mean(axis=0)).mean()


def test_the_template_goes_to_every_image(fitted):
    model, images = fitted
    z = model.latents_
    mean = model.inverse_transform(0 * z[:1])
    shown = model.from_template(mean, z)
    assert np.allclose(shown, pull(mean[:, None], model.displacement(z))[:, 0], atol=1e-6)
    assert np.abs(shown - images).mean() < np.abs(mean - images).mean() / 2


@pytest.mark.parametrize("interpolation", ["linear", "nearest"])
def test_label_maps_keep_their_labels(fitted, interpolation):
    model, images = fitted
    labels = np.where(images > 0.5, 7, 0).astype(np.int16)
    labels[:, 10:][labels[:, 10:] > 0] = 40
    options = {"kind": "labels", "interpolation": interpolation}
    found = model.to_template(labels, model.latents_, **options)
    assert found.dtype.kind == "u"
    assert set(np.unique(found)) == {0, 7, 40}

    def overlap(maps):
        return np.mean([(a == b)[(a > 0) | (b > 0)].mean() for a in maps for b in maps])

    assert overlap(found) > overlap(labels) + 0.05
    returned = model.from_template(found, model.latents_, **options)
    assert (returned == labels).mean() > 0.93


def test_other_intensities_are_warped_alike(fitted):
    model, images = fitted
    other = 100 * images - 3
    found = model.to_template(other, model.latents_, kind="intensities")
    expected = 100 * model.to_template(images, model.latents_) - 3
    assert np.allclose(found, expected, atol=1e-3)
    two = np.stack([other, images], axis=-1)
    both = model.to_template(two, model.latents_, kind="intensities")
    assert np.allclose(both[..., 0], found)
    counts = (1000 * images).astype(np.int16)  # integers stay what they are
    kept = model.to_template(counts, model.latents_, kind="intensities")
    assert kept.max() > 500


def test_modulated_maps_preserve_mass(fitted):
    model, images = fitted
    axes = tuple(range(1, images.ndim))
    for fwhm in (0, 3):
        found = model.to_template(images, model.latents_, modulate=True, fwhm=fwhm)
        ratio = found.sum(axis=axes, dtype=np.float64) / images.sum(axis=axes, dtype=np.float64)
        assert np.abs(ratio - 1).max() < 1e-4
    changes = model.jacobians(model.latents_)
    plain = model.to_template(images, model.latents_)
    found = model.to_template(images, model.latents_, modulate=True)
    assert np.abs(found - plain * changes).mean() < 0.02


def test_nothing_is_left_out_where_warps_expand():
    """A stretch by three: pushed as whole voxels, two of three would stay empty."""
    x = np.arange(36)
    displacement = np.zeros((1, 2, 4, 36), np.float32)
    displacement[0, 1] = 4 * np.sin(2 * np.pi * x / 36) * 3
    # It folds elsewhere; what counts is the stretched part around x = 0.
    pushed = modulated(np.ones((1, 1, 4, 36), np.float32), displacement)
    around = pushed[0, 0, 1, [34, 35, 0, 1, 2]]
    assert around.min() > 0.2
    assert np.isclose(pushed.sum(), 4 * 36, rtol=1e-5)


def test_jacobians_tell_how_much_larger_images_are(fitted):
    model, images = fitted
    changes = model.jacobians(model.latents_)
    assert changes.min() > 0
    assert np.allclose(
        changes, jacobian_determinant(model.displacement(model.latents_, inverse=True))
    )
    assert np.allclose(model.jacobians(model.latents_, log=True), np.log(changes), atol=1e-5)
    inside = model.inverse_transform(0 * model.latents_[:1])[0] > 0.5
    axes = tuple(range(1, images.ndim))
    volumes = (images > 0.5).sum(axis=axes) / inside.sum()
    told = changes[:, inside].mean(axis=1)
    assert np.corrcoef(volumes, told)[0, 1] > 0.9
    assert np.abs(told / volumes - 1).max() < 0.15
    smooth = model.jacobians(model.latents_, fwhm=4)
    assert smooth.std() < changes.std()
    assert np.allclose(smooth.mean(axis=axes), changes.mean(axis=axes), rtol=1e-4)


def test_determinants_that_are_not_positive_have_no_logarithm():
    fold = np.zeros((1, 2, 8, 8), np.float32)
    fold[0, 1] = 3 * np.sin(np.arange(8) * np.pi / 4)
    values = volume_changes(fold, log=True)
    assert np.isnan(values).any()
    assert np.isfinite(values).any()


def test_missing_voxels_stay_missing():
    image = np.ones((1, 1, 6, 6), np.float32)
    image[..., 3:5, 3] = np.nan
    shift = np.zeros((1, 2, 6, 6), np.float32)
    shift[:, 1] = 1.25
    found = warped(image, shift)
    assert np.isnan(found[0, 0, 3:5, 2]).all()  # three quarters of it missing
    assert np.allclose(found[np.isfinite(found)], 1)
    assert np.isnan(found).sum() == 2
    assert np.isnan(warped(image, shift, "nearest")).sum() == 2
    assert np.isclose(modulated(image, shift).sum(), 34)


def test_models_without_shape_leave_everything_where_it_is():
    images = ellipsoids((8, 7))
    model = ShapeAppearanceModel(2, latents="appearance", n_iter=2).fit(images)
    assert np.allclose(model.to_template(images), images)
    assert np.array_equal(model.displacement(model.latents_, inverse=True), np.zeros((8, 2, 8, 7)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m, x: m.to_template(x, kind="labels"), "z must be given"),
        (lambda m, x: m.to_template(Mesh(np.zeros((1, 3)))), "z must be given"),
        (lambda m, x: m.to_template(x, m.latents_[:2]), "one for each of 2 latents, got 8"),
        (lambda m, x: m.to_template(x, m.latents_, interpolation="cubic"), "interpolation must be"),
        (lambda m, x: m.to_template(x, m.latents_, kind="video"), "kind must be"),
        (lambda m, x: m.to_template(x, m.latents_, fwhm=-1), "fwhm must be"),
        (
            lambda m, x: m.to_template(x[:, 1:], m.latents_, kind="intensities"),
            "must have the shape",
        ),
        (
            lambda m, x: m.to_template(x, m.latents_, modulate=True, interpolation="nearest"),
            "modulate needs",
        ),
        (lambda m, x: m.to_template(x, m.latents_, modulate=True, kind="labels"), "keeps amounts"),
        (lambda m, x: m.surface(m.latents_[0], label=3), "label is of|surfaces are of"),
    ],
)
def test_wrong_arguments_are_told(fitted, call, message):
    with pytest.raises(ValueError, match=message):
        call(*fitted)


# ---- files, and the world


@pytest.fixture(scope="module")
def of_files(tmp_path_factory):
    """Return a model of label maps in files on an oblique grid, with a margin, and the files."""
    folder = tmp_path_factory.mktemp("labels")
    maps = np.where(ellipsoids((14, 12, 10), 6) > 0.5, 3, 0).astype(np.uint8)
    files = [folder / f"{n}.nii.gz" for n in range(6)]
    for path, labels in zip(files, maps, strict=True):
        nib.save(nib.Nifti1Image(labels, oblique()), path)
    model = ShapeAppearanceModel(2, likelihood="categorical", n_iter=3, shape_penalty=STIFF)
    return model.fit(model_images(model, files)), files, maps


def model_images(model, files):
    from anamorph.images.files import FileImages

    return FileImages(files, model.likelihood, pad=2)


def test_points_are_where_the_images_of_files_are(of_files):
    """What an image shows at a point, it shows in the template where the point goes."""
    model, files, _ = of_files
    image = nib.load(files[0]).get_fdata()
    in_template = model.to_template(files, model.latents_, kind="intensities")[0]
    voxels = np.random.default_rng(1).uniform(4, 8, (40, 3))
    points = voxels @ oblique()[:3, :3].T + oblique()[:3, 3]
    (moved,) = model.to_template(Mesh(points), model.latents_[0])
    inverse = np.linalg.inv(model.origin_.affine)
    there = moved.points @ inverse[:3, :3].T + inverse[:3, 3]
    nearest = tuple(np.rint(there).astype(int).T)
    values = in_template[nearest] > 1.5
    given = image[tuple(np.rint(voxels).astype(int).T)] > 1.5
    assert (values == given).mean() > 0.85
    assert np.abs(moved.points - points).max() > 0.1
    (returned,) = model.from_template(moved, model.latents_[0])
    assert np.abs(returned.points - points).max() < 1e-3


def test_surfaces_are_closed_and_enclose_what_voxels_do(of_files):
    pytest.importorskip("skimage")
    model, _, _ = of_files
    voxel = abs(np.linalg.det(oblique()[:3, :3]))
    for z in model.latents_:
        mesh = model.surface(z, label=3)
        shown = model.inverse_transform(z[None])[0].argmax(axis=-1)
        assert mesh.is_closed
        assert np.isclose(mesh.volume, voxel * (shown == 1).sum(), rtol=0.01)
        middle = mesh.points.mean(axis=0)
        inner = model.origin_.inner_grid(model.image_format_.space)
        assert np.abs(middle - inner.centre).max() < 2.5
    assert np.array_equal(model.surface(z).faces, mesh.faces)
    with pytest.raises(ArgumentError, match="one of"):
        model.surface(z, label=5)
    with pytest.raises(ArgumentError, match="give a label"):
        model.surface(z, level=0.5)


@pytest.mark.parametrize("radius", [10, 15])
def test_the_surface_of_a_ball_has_its_volume(radius):
    pytest.importorskip("skimage")
    distance = np.sqrt(((np.indices((36, 36, 36)) - 17.3) ** 2).sum(axis=0))
    grid = Grid((36, 36, 36), oblique(-1))
    mesh = surface_of(radius - distance, World.of_grid(grid))
    expected = 4 / 3 * np.pi * radius**3 * abs(np.linalg.det(oblique()[:3, :3]))
    assert mesh.is_closed
    assert np.isclose(mesh.volume, expected, rtol=0.01)


def test_surfaces_at_the_edge_are_closed():
    pytest.importorskip("skimage")
    assert surface_of(np.ones((4, 4, 4)), World(np.eye(4), 3)).is_closed


def test_points_of_pictures_are_columns_and_rows():
    """x is the column of a pixel and y its row, as in every program that marks pictures."""
    world = World.of_grid(Grid((20, 30)), margin=2)
    voxels, across = world.split(np.array([[5.0, 7.0, 1.0]]))
    assert voxels.tolist() == [[9.0, 7.0]]
    assert world.join(voxels, across).tolist() == [[5.0, 7.0, 1.0]]


def test_the_same_on_a_gpu(gpu):  # noqa: F811
    generator = np.random.default_rng(0)
    image = generator.random((1, 2, 5, 4)).astype(np.float32)
    image[0, 0, 2, 2] = np.nan
    displacement = generator.normal(0, 0.7, (1, 2, 5, 4)).astype(np.float32)
    here = image, displacement
    there = gpu.asarray(image), gpu.asarray(displacement)
    assert np.allclose(warped(*there).get(), warped(*here), atol=1e-6, equal_nan=True)
    assert np.allclose(modulated(*there).get(), modulated(*here), atol=1e-5)
    nearest = warped(*there, "nearest").get()
    assert np.array_equal(nearest, warped(*here, "nearest"), equal_nan=True)
    assert np.allclose(volume_changes(there[1]), volume_changes(here[1]))
