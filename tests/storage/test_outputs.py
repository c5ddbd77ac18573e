"""Images that a model writes: channels where the user has them, without margin, in place."""

import nibabel as nib
import numpy as np
import pytest
from PIL import Image

from anamorph.images import Grid, ImageFormat
from anamorph.storage import Origin
from anamorph.storage.outputs import ImageOutput

PAD = 2


def random_image(*shape):
    return np.random.default_rng(0).random(shape)


def output(space, n_channels=1, channel_axis=None, likelihood="gaussian", *, files="", **options):
    """Return how a model with a margin writes its images."""
    affine = Grid(space, np.diag([2.0, 3.0, 4.0, 1.0])).padded(PAD).affine
    image_format = ImageFormat(
        likelihood, tuple(length + 2 * PAD for length in space), n_channels, channel_axis
    )
    origin = Origin(5, affine if files == ".nii" else None, PAD, suffix=files or None)
    return ImageOutput(image_format, origin, True, **options)


@pytest.mark.parametrize("space", [(5, 6), (5, 6, 7)])
@pytest.mark.parametrize("axis", [1, -1])
def test_arrays_have_channels_where_the_user_has_them(tmp_path, space, axis):
    axis %= len(space) + 2
    written = output(space, 3, axis)
    image = random_image(3, *written.format.space)
    written.write(tmp_path / f"image{written.suffix}", image)
    inside = image[:, *(slice(PAD, -PAD),) * len(space)]
    np.testing.assert_array_equal(np.load(tmp_path / "image.npy"), np.moveaxis(inside, 0, axis - 1))


@pytest.mark.parametrize(("space", "stored"), [((5, 6), (5, 6, 1)), ((5, 6, 7), (5, 6, 7))])
@pytest.mark.parametrize("n_channels", [1, 3])
def test_volumes_have_channels_last_and_the_affine_of_the_files(
    tmp_path, space, stored, n_channels
):
    written = output(space, n_channels, 1 if n_channels > 1 else None, files=".nii")
    image = random_image(n_channels, *written.format.space)
    written.write(tmp_path / f"image{written.suffix}", image)
    volume = nib.load(tmp_path / "image.nii.gz")
    assert volume.shape == (stored if n_channels == 1 else (*stored, n_channels))
    np.testing.assert_allclose(volume.affine, np.diag([2.0, 3.0, 4.0, 1.0]))
    inside = image[:, *(slice(PAD, -PAD),) * len(space)]
    values = np.asarray(volume.dataobj).reshape(*space, n_channels)
    np.testing.assert_allclose(values, np.moveaxis(inside, 0, -1), rtol=1e-6)


def test_pictures_are_clipped_to_eight_bits(tmp_path):
    written = output((5, 6), 3, 3, files=".png")
    image = 1.2 * random_image(3, 9, 10)
    written.write(tmp_path / f"image{written.suffix}", image)
    inside = np.clip(image[:, PAD:-PAD, PAD:-PAD], 0, 1)
    with Image.open(tmp_path / "image.png") as picture:
        np.testing.assert_array_equal(
            np.asarray(picture), np.rint(255 * np.moveaxis(inside, 0, -1))
        )


@pytest.mark.parametrize("as_probabilities", [False, True])
def test_label_maps_are_the_most_probable_class_unless_probabilities_are_wanted(
    tmp_path, as_probabilities
):
    written = output((5, 6), 4, likelihood="categorical", as_probabilities=as_probabilities)
    image = random_image(4, 9, 10)
    written.write(tmp_path / f"image{written.suffix}", image)
    inside = image[:, PAD:-PAD, PAD:-PAD]
    expected = np.moveaxis(inside, 0, -1) if as_probabilities else inside.argmax(axis=0)
    np.testing.assert_array_equal(np.load(tmp_path / "image.npy"), expected)
