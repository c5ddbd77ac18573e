"""Pictures: what is drawn is what the model says, in its place, with its aspect and its name."""

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from sklearn.exceptions import NotFittedError

from anamorph import ShapeAppearanceModel, plots
from anamorph.geometry import jacobian_determinant
from anamorph.latents import mode_standard_deviations
from anamorph.plots.rendering import (
    MISSING,
    background_class,
    channel_colours,
    class_colours,
    palette_of,
)
from anamorph.plots.views import frame_of
from tests import simulated

N, K = 6, 3
KINDS = {  # likelihood, space, channels, voxel size
    "grey": ("bernoulli", (12, 10), 1, (1.0, 1.0)),
    "rgb": ("gaussian", (10, 8), 3, (2.0, 1.0)),
    "volumes": ("categorical", (8, 6, 7), 3, (1.0, 1.5, 2.0)),
}
N_VIEWS = {"grey": 1, "rgb": 1, "volumes": 3}


def random_model(kind):
    """Return a model that was never fitted but knows what it takes, and images (N, ...)."""
    return simulated.finished_model(*KINDS[kind], n_images=N, n_components=K)


@pytest.fixture(scope="module", params=list(KINDS))
def drawn(request):
    return request.param, *random_model(request.param)


@pytest.fixture(scope="module")
def grey():
    return random_model("grey")


@pytest.fixture(scope="module")
def latents():
    return np.random.default_rng(0).standard_normal((N, K))


def pictures(figure):
    """Return the images of each panel that has some, in the order of drawing."""
    return [[image.get_array() for image in axes.images] for axes in figure.axes if axes.images]


def views_of(model, images, limits=(0, 1)):
    """Return what panels should show of the model's images, from scratch: RGB per view."""
    channels_last = images if images.ndim == model.mean_.ndim + 1 else images[..., None]
    is_categorical = model.likelihood == "categorical"
    n_channels = channels_last.shape[-1]
    colours = channel_colours(n_channels)
    if is_categorical:
        mean = model.inverse_transform(np.zeros((1, len(model.latent_precision_))))
        colours = class_colours(n_channels, background_class(np.moveaxis(mean, -1, 1)))
    low, high = limits
    rgb = np.clip(np.clip((channels_last - low) / (high - low), 0, 1) @ colours, 0, 1)
    if rgb.ndim == 4:
        return [[image] for image in rgb]
    x, y, z = (n // 2 for n in rgb.shape[1:4])
    return [
        [np.swapaxes(plane, 0, 1) for plane in (image[:, y], image[x], image[:, :, z])]
        for image in rgb
    ]


def assert_shown(panels, expected):
    assert len(panels) == len(expected)
    for panel, views in zip(panels, expected, strict=True):
        assert len(panel) == len(views)
        for shown, view in zip(panel, views, strict=True):
            np.testing.assert_allclose(shown, view, atol=1e-5)


def assert_colour(shown, colour):
    np.testing.assert_allclose(shown, np.broadcast_to(colour, shown.shape), atol=1e-6)


# ---- images


def test_fits_show_data_and_what_the_model_makes_of_it(drawn, latents):
    kind, model, images = drawn
    limits = None if kind != "rgb" else (-4, 4)
    figure = plots.plot_fits(model, images, latents, [4, 1], limits=limits)
    panels = pictures(figure)
    assert len(panels) == 4 * 2
    assert all(len(panel) == N_VIEWS[kind] for panel in panels)
    chosen = latents[[4, 1]]
    data = np.eye(3)[images[[4, 1]]] if kind == "volumes" else images[[4, 1]]
    parts = ("both", "shape", "appearance")
    expected = [data, *(model.inverse_transform(chosen, part) for part in parts)]
    assert_shown(panels, [v for row in expected for v in views_of(model, row, limits or (0, 1))])
    assert [axes.get_ylabel() for axes in figure.axes[::2]] == [
        "data", "shape and\nappearance", "shape only", "appearance\nonly"
    ]  # fmt: skip
    assert [axes.get_title() for axes in figure.axes[:2]] == ["image 4", "image 1"]


def test_fits_find_the_latents_of_the_images_they_show(grey):
    model, images = grey
    found = plots.plot_fits(model, list(images), indices=[2], names=list("abcdef"))
    given = plots.plot_fits(model, images, model.transform(images), [2])
    for one, other in zip(pictures(found), pictures(given), strict=True):
        np.testing.assert_allclose(one[0], other[0], atol=1e-3)
    assert found.axes[0].get_title() == "c"


def test_modes_go_so_many_standard_deviations(drawn):
    kind, model, _ = drawn
    limits = None if kind != "rgb" else (-4, 4)
    figure = plots.plot_modes(model, (0, 2), limits=limits)
    panels = pictures(figure)
    assert len(panels) == 2 * 6
    deviation = mode_standard_deviations(model.latent_precision_)[2]
    expected = model.inverse_transform([[0, 0, s * deviation] for s in (-5, -3, -1, 1, 3, 5)])
    assert_shown(panels[6:], views_of(model, expected, limits or (0, 1)))
    assert [axes.get_title() for axes in figure.axes[:2]] == ["−5 s.d.", "−3 s.d."]
    assert [axes.get_ylabel() for axes in figure.axes[::6]] == ["mode 1", "mode 3"]


def test_samples_come_in_opposite_pairs(drawn):
    kind, model, _ = drawn
    limits = None if kind != "rgb" else (-4, 4)
    figure = plots.plot_samples(model, 10, 7, limits=limits)  # more than one row holds
    panels = pictures(figure)
    assert len(figure.axes) == 4 * 8
    assert len(panels) == 2 * 10
    images, z = model.sample(10, 7)
    opposite = model.inverse_transform(-z)
    order = [images[:8], opposite[:8], images[8:], opposite[8:]]
    assert_shown(panels, [v for row in order for v in views_of(model, row, limits or (0, 1))])


def test_arithmetic_ends_with_the_sum(drawn, latents):
    kind, model, _ = drawn
    limits = None if kind != "rgb" else (-4, 4)
    terms = [(1, latents[0], "a"), (-1, latents[1], "b"), (0.5, latents[2], "c")]
    figure = plots.plot_arithmetic(model, terms, result="d", limits=limits)
    z = np.vstack([latents[:3], latents[0] - latents[1] + latents[2] / 2])
    expected = views_of(model, model.inverse_transform(z), limits or (0, 1))
    assert_shown(pictures(figure), expected)
    assert [axes.get_title() for axes in figure.axes] == ["a", "b", "c", "d"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["", "−", "+ 0.5 ×", "="]


@pytest.mark.parametrize("kind", ["grey", "rgb"])
def test_missing_voxels_have_a_colour_of_their_own_until_they_are_filled(kind):
    model, images = random_model(kind)
    hidden = np.array(images, np.float32)
    hidden[:, :5] = np.nan
    limits = None if kind != "rgb" else (-4, 4)
    panels = pictures(plots.plot_imputed(model, hidden, range(3), limits=limits))
    assert len(panels) == 2 * 3
    for before, after in zip(panels[:3], panels[3:], strict=True):
        assert_colour(before[0][:5], to_rgb(MISSING))
        np.testing.assert_array_equal(before[0][5:], after[0][5:])
    expected = views_of(model, model.impute(hidden[:3]), limits or (0, 1))
    assert_shown(panels[3:], expected)


def test_volumes_with_nothing_missing_are_left_alone():
    model, images = random_model("volumes")
    panels = pictures(plots.plot_imputed(model, images, [0]))
    assert_shown(panels[1:], panels[:1])


def test_pictures_keep_the_aspect_of_voxels(drawn):
    kind, model, _ = drawn
    axes = plots.plot_modes(model, [0], [0]).axes[0]
    assert axes.get_aspect() == 1
    size = np.multiply(model.mean_.shape[1:], model.voxel_size)
    pairs = [(0, 2), (1, 2), (0, 1)] if kind == "volumes" else [(1, 0)]
    for image, (h, v) in zip(axes.images, pairs, strict=True):
        left, right, low, high = image.get_extent()
        assert right - left == pytest.approx(size[h])
        assert abs(high - low) == pytest.approx(size[v])
    assert axes.yaxis_inverted() == (kind != "volumes")  # rows of images go down, volumes up


def test_slices_meet_where_they_are_asked_to():
    volume = np.arange(8 * 6 * 7).reshape(8, 6, 7)
    coronal, sagittal, axial = frame_of((8, 6, 7), voxel=(1, 2, 3)).views
    np.testing.assert_array_equal(coronal.take(volume), volume[:, 2].T)
    np.testing.assert_array_equal(sagittal.take(volume), volume[1].T)
    np.testing.assert_array_equal(axial.take(volume), volume[:, :, 3].T)
    assert coronal.extent[:2] == axial.extent[:2]  # they share the horizontal axis
    assert coronal.extent[2:] == sagittal.extent[2:]  # and they the vertical one


@pytest.mark.parametrize(("kind", "part"), [("grey", "both"), ("volumes", "shape")])
def test_animations_go_back_and_forth(kind, part, tmp_path):
    model, _ = random_model(kind)
    path = tmp_path / "mode.gif"
    plots.save_animation(model, 1, path, n_steps=4, part=part)
    with Image.open(path) as gif:
        assert gif.n_frames == 2 * 4 - 2
        frames = []
        for n in range(gif.n_frames):
            gif.seek(n)
            frames.append(np.asarray(gif.convert("RGB"), float))
    assert np.abs(frames[1] - frames[-1]).mean() < 1  # the way back is the way there
    assert np.abs(frames[0] - frames[3]).mean() > 1


# ---- colours


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_channels_together_are_no_brighter_than_white(n):
    total = channel_colours(n).sum(axis=0)
    assert channel_colours(n).shape == (n, 3)
    assert total.max() == pytest.approx(1)


@pytest.mark.parametrize("n", [2, 8, 9, 40, 256])
def test_every_class_has_a_colour_that_is_not_that_of_missing(n):
    colours = class_colours(n)
    assert colours.shape == (n, 3)
    assert np.abs(colours[: min(n, 8)] - to_rgb(MISSING)).sum(axis=1).min() > 0.2
    assert len(np.unique(colours[: min(n, 8)], axis=0)) == min(n, 8)


def test_limits_are_zero_and_one_where_values_lie_between_and_else_their_range():
    values = np.linspace(0, 0.9, 1000).reshape(1, 1, 40, 25)
    assert palette_of(values, "gaussian").highest == 1
    assert palette_of(100 * values, "gaussian").highest == pytest.approx(90, rel=0.01)
    both = np.concatenate([values, 100 * values], axis=1)
    np.testing.assert_allclose(palette_of(both, "gaussian").highest, [1, 90], rtol=0.01)
    assert palette_of(values / 100, "bernoulli").highest == 1
    assert palette_of(np.full((1, 1, 2, 2), np.nan), "gaussian").highest == 1


def test_far_modes_do_not_decide_on_the_colours_of_near_ones():
    model, _ = random_model("rgb")
    near = pictures(plots.plot_modes(model, [0], [1]))
    both = pictures(plots.plot_modes(model, [0], [1, 9]))
    np.testing.assert_allclose(near[0][0], both[0][0], atol=1e-5)


# ---- latents, objective


@pytest.mark.parametrize(
    ("labels", "n_groups"),
    [(["a", "b", "a", "b", "c", "c"], 3), ([1, 1, 2, 2, 2, 1], 2), (["a", None, "b"] * 2, 3)],
)
def test_categories_get_a_legend(latents, labels, n_groups):
    axes = plots.plot_latents(latents, labels, (2, 0), label_name="group")
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("latent 3", "latent 1")
    assert len(axes.collections) == n_groups == len(axes.get_legend().get_texts())
    assert axes.get_legend().get_title().get_text() == "group"
    points = np.concatenate([group.get_offsets() for group in axes.collections])
    np.testing.assert_allclose(np.sort(points[:, 0]), np.sort(latents[:, 2]))


def test_quantities_get_a_colour_bar():
    latents = np.random.default_rng(1).standard_normal((15, 2))
    ages = np.arange(15.0)
    ages[3] = np.nan
    axes = plots.plot_latents(latents, ages, label_name="age")
    grey, coloured = axes.collections
    assert len(grey.get_offsets()) == 1
    np.testing.assert_array_equal(coloured.get_array(), np.delete(ages, 3))
    assert [other.get_ylabel() for other in axes.figure.axes[1:]] == ["age"]


def test_a_dollar_in_a_name_is_no_formula(grey, latents):
    model, images = grey
    name = r"$\frac"
    figures = [
        plots.plot_fits(model, images, latents, [0], names=[name] * N),
        plots.plot_modes(model, [0], [0], names=[name]),
        plots.plot_arithmetic(model, [(1, latents[0], name)], result=name),
        plots.plot_latents(latents, [name, "b"] * 3, label_name=name).figure,
        plots.plot_latents(np.eye(12), np.arange(12), label_name=name).figure,
    ]
    for figure in figures:
        figure.draw_without_rendering()


def test_latents_without_labels_are_all_alike(latents):
    (points,) = plots.plot_latents(latents).collections
    np.testing.assert_array_equal(points.get_offsets(), latents[:, :2])


def test_pairs_of_latents_lie_below_their_histograms(latents):
    figure = plots.plot_latent_pairs(latents, ["a", "b"] * 3, (2, 0))
    panels = np.array(figure.axes).reshape(2, 2)
    assert sum(bar.get_height() for bar in panels[0, 0].patches) == N
    points = np.concatenate([group.get_offsets() for group in panels[1, 0].collections])
    np.testing.assert_allclose(np.sort(points[:, 0]), np.sort(latents[:, 2]))
    np.testing.assert_allclose(np.sort(points[:, 1]), np.sort(latents[:, 0]))
    assert not panels[0, 1].axison
    assert not any(axes.get_legend() for axes in figure.axes)
    assert (panels[1, 0].get_xlabel(), panels[1, 0].get_ylabel()) == ("latent 3", "latent 1")


def test_objective_is_drawn_by_iteration(grey):
    model, _ = grey
    (line,) = plots.plot_objective(model.objective_).lines
    np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(line.get_ydata(), model.objective_)


# ---- deformations


def smooth_displacement(space, seed=0):
    generator = np.random.default_rng(seed)
    return simulated.smooth(generator, (len(space), *space), len(space), 2.0) / 2


def test_grid_lines_are_carried_by_the_warp():
    displacement = smooth_displacement((12, 10))
    axes = plots.plot_deformation(displacement, spacing=3, voxel_size=(2, 1))
    (lines,) = axes.collections
    segments = lines.get_segments()
    assert len(segments) == 4 + 4
    row = 3
    x, y = np.arange(10) + displacement[1, row], row + displacement[0, row]
    np.testing.assert_allclose(segments[1], np.stack([x + 0.5, 2 * (y + 0.5)], 1), rtol=1e-5)


@pytest.mark.parametrize("affine", [None, np.diag([-1.0, 1, 1, 1])])
def test_grid_lines_over_the_image_are_where_the_warp_meets_them(affine):
    displacement = np.zeros((2, 12, 10), np.float32)
    displacement[1] = 0.25  # the image reads the mean a quarter of a voxel further
    axes = plots.plot_deformation(displacement, over="image", spacing=3, affine=affine)
    view = frame_of((12, 10), affine=affine).views[0]
    n_lines = {0: 4, 1: 4}
    for lines, axis in zip(axes.collections, (view.horizontal, view.vertical), strict=True):
        points = np.concatenate([path.vertices for path in lines.get_paths()])
        place = np.arange(0.0, 12.0, 3) - displacement[axis, 0, 0]
        place = place[place >= 0]
        expected = view.place(place, place)[0 if axis == view.horizontal else 1]
        shown = np.unique(points[:, 0 if axis == view.horizontal else 1].round(4))
        np.testing.assert_allclose(shown, np.sort(expected)[: n_lines[axis]], atol=1e-3)


def test_grids_of_volumes_have_lines_in_three_slices_over_a_background():
    space = (8, 6, 7)
    axes = plots.plot_deformation(
        smooth_displacement(space),
        background=np.full((*space, 3), 1 / 3),
        likelihood="categorical",
    )
    assert len(axes.collections) == len(axes.images) == 3
    expected = class_colours(3).mean(axis=0)
    for image in axes.images:
        assert_colour(image.get_array(), expected)


@pytest.mark.parametrize("space", [(12, 10), (8, 6, 7)])
def test_log_jacobians_are_those_of_the_warp(space):
    displacement = smooth_displacement(space)
    axes = plots.plot_log_jacobian(displacement)
    determinant = jacobian_determinant(displacement.astype(np.float32))
    folds = determinant <= 0
    expected = np.where(folds, np.nan, np.log(np.where(folds, 1, determinant)))
    views = frame_of(space).views
    assert len(axes.images) == len(views)
    for image, view in zip(axes.images, views, strict=True):
        shown = image.get_array().filled(np.nan)
        np.testing.assert_allclose(shown, view.take(expected), atol=1e-5)
        low, high = image.get_clim()
        assert low == -high
    assert len(axes.figure.axes) == 2


# ---- composing


def test_pictures_compose_and_leave_matplotlib_as_it_was(tmp_path, grey, latents):
    model, images = grey
    before = dict(matplotlib.rcParams)
    figure = Figure((10, 6), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    assert plots.plot_fits(model, images, latents, figure=top) is top
    left, right = bottom.subplots(1, 2)
    assert plots.plot_objective(model.objective_, axes=left) is left
    assert plots.plot_log_jacobian(smooth_displacement((12, 10)), axes=right) is right
    figure.savefig(tmp_path / "all.png", dpi=40)
    assert dict(matplotlib.rcParams) == before
    with Image.open(tmp_path / "all.png") as picture:
        assert picture.size == (400, 240)


def test_nothing_is_cut_off(drawn, latents):
    _, model, images = drawn
    figure = plots.plot_fits(model, images, latents, range(3))
    figure.draw_without_rendering()
    box = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert min(box.x0, box.y0) >= 0
    assert box.x1 <= width
    assert box.y1 <= height


# ---- one line for what is wrong


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda m, x, z: plots.plot_modes(m, [3]), "a mode must be an integer from 0 to 2, got 3"),
        (lambda m, x, z: plots.plot_modes(m, [0.5]), "a mode must be an integer"),
        (lambda m, x, z: plots.plot_modes(m, []), "must not be empty"),
        (lambda m, x, z: plots.plot_modes(m, [0], names=["a", "b"]), "names must be 1, one for"),
        (lambda m, x, z: plots.plot_deformation(np.zeros((2, 4, 4)), over="x"), "over must be one"),
        (lambda m, x, z: plots.plot_modes(m, limits=(1, 1)), "limits must be two increasing"),
        (lambda m, x, z: plots.plot_fits(m, x, z[:, :2]), "latents must be 6 x 3"),
        (lambda m, x, z: plots.plot_fits(m, x, z[:5]), "got 5 rows"),
        (lambda m, x, z: plots.plot_fits(m, x, z, [6]), "an index must be an integer from 0 to 5"),
        (lambda m, x, z: plots.plot_fits(m, x, z, []), "no images to show"),
        (lambda m, x, z: plots.plot_fits(m, x, z, names=["a"]), "names must be 6"),
        (lambda m, x, z: plots.plot_fits(m, x[:, 1:]), "image 0 must have the shape"),
        (lambda m, x, z: plots.plot_samples(m, 0), "n_pairs must be an integer >= 1, got 0"),
        (lambda m, x, z: plots.plot_arithmetic(m, []), "terms must not be empty"),
        (lambda m, x, z: plots.plot_arithmetic(m, [(1, z[0, 1:], "a")]), "latents must be 1 x 3"),
        (lambda m, x, z: plots.save_animation(m, 0, "a.png"), "path must end in .gif"),
        (lambda m, x, z: plots.save_animation(m, 9, "a.gif"), "a mode must be an integer"),
        (lambda m, x, z: plots.save_animation(m, 0, "a.gif", n_steps=1), "n_steps must be"),
        (lambda m, x, z: plots.plot_latents(z[0]), "latents must have shape"),
        (lambda m, x, z: plots.plot_latents(z, dims=(0, 3)), "a dim must be an integer from 0"),
        (lambda m, x, z: plots.plot_latents(z, dims=(0,)), "dims must be a pair"),
        (lambda m, x, z: plots.plot_latents(z, ["a"]), "labels must be 6"),
        (lambda m, x, z: plots.plot_objective([]), "objective must be a list of numbers"),
        (lambda m, x, z: plots.plot_deformation(z), "displacement must have shape"),
        (lambda m, x, z: plots.plot_deformation(np.zeros((2, 4, 4)), spacing=0), "spacing must"),
        (
            lambda m, x, z: plots.plot_deformation(np.zeros((2, 4, 4)), background=z),
            "background must have the shape",
        ),
        (lambda m, x, z: plots.plot_log_jacobian(np.zeros((2, 4, 4)), limit=0), "limit must be"),
        (
            lambda m, x, z: plots.plot_log_jacobian(np.zeros((3, 4, 4, 4)), voxel=(0, 4, 0)),
            "voxel must be inside",
        ),
    ],
)
def test_errors_say_what_is_accepted(grey, latents, draw, message):
    with pytest.raises(ValueError, match=message) as error:
        draw(*grey, latents)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["fits", "modes", "samples", "arithmetic", "imputed"])
def test_models_must_be_fitted(name):
    arguments = {"arithmetic": [[(1, np.zeros(3), "a")]]}
    images = [np.zeros((3, 4, 4))] if name in ("fits", "imputed") else []
    draw = getattr(plots, f"plot_{name}")
    with pytest.raises(NotFittedError, match="not fitted"):
        draw(ShapeAppearanceModel(3), *arguments.get(name, images))


def test_animated_models_must_be_fitted(tmp_path):
    with pytest.raises(NotFittedError, match="not fitted"):
        plots.save_animation(ShapeAppearanceModel(3), 0, tmp_path / "a.gif")


# ---- which way up


def volume_with_marks(affine):
    """Return a volume with a bright voxel at the left, back and bottom end of the body's axes."""
    space = (8, 6, 7)
    corners = np.array([[i, j, k] for i in (0, 7) for j in (0, 5) for k in (0, 6)])
    places = corners @ affine[:3, :3].T + affine[:3, 3]
    lowest = corners[np.argmin(places.sum(axis=1))]  # towards left, posterior and inferior
    volume = np.zeros(space)
    volume[tuple(lowest)] = 1
    return volume, tuple(lowest)


@pytest.mark.parametrize("flips", [(1, 1, 1), (-1, 1, 1), (1, -1, -1)])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2)])
def test_volumes_with_an_affine_are_shown_with_left_on_the_left_and_superior_up(flips, order):
    affine = np.eye(4)
    affine[:3, :3] = np.diag(flips)[list(order)] * 2.0 + 0.05  # a little oblique
    volume, voxel = volume_with_marks(affine)
    frame = frame_of(volume.shape, (2, 2, 2), voxel, affine)
    axes = Figure().subplots()
    for view, image in zip(frame.views, frame.draw(axes, volume), strict=True):
        row, column = np.argwhere(image.get_array() == 1)[0]
        x, y = view.place(column, row)
        left, _, low, _ = view.extent
        assert (x, y) == (left + 1, low + 1)  # the corner voxel, 2 mm wide
    assert [view.sides for view in frame.views] == [("L", "R"), ("P", "A"), ("L", "R")]


def test_flipped_slices_are_drawn_where_their_voxels_are():
    image = np.zeros((4, 5))
    image[0, 0] = 1
    axes = Figure((1, 1)).subplots()
    axes.set_position((0, 0, 1, 1))
    frame_of(image.shape, affine=np.diag([-1.0, 1, 1, 1])).draw(axes, image, "gray")
    axes.figure.draw_without_rendering()
    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()
    drawn = np.asarray(canvas.buffer_rgba())[..., 0]
    assert drawn[-5, -15] > 200  # bottom right: x points left, y points up
    assert drawn[5, 15] < 50


def test_slices_with_an_affine_have_their_first_axis_across():
    frame = frame_of((8, 6), (2, 3), affine=np.eye(4))
    assert frame.size == (16, 18)
    assert not frame.shows_first_row_on_top


def test_the_background_is_what_is_along_the_border():
    labels = np.full((1, 3, 6, 6), 0.1)
    labels[:, 2] = 0.8
    labels[:, :, 2:4, 2:4] = np.reshape([0.9, 0.05, 0.05], (1, 3, 1, 1))
    labels[0, :, 0] = np.nan
    assert background_class(labels) == 2
    colours = palette_of(labels, "categorical").colours
    np.testing.assert_array_equal(colours[2], 0)
    assert colours[:2].max(axis=1).min() > 0.5


def test_voxel_sizes_of_files_decide_on_the_aspect():
    model, _ = random_model("volumes")
    model.voxel_size = None  # as when it came from the files
    axes = plots.plot_modes(model, [0], [0]).axes[0]
    left, right, low, high = axes.images[0].get_extent()
    assert (right - left, high - low) == pytest.approx((8 * 1.0, 7 * 2.0))


def test_opened_collections_are_read_only_where_they_are_shown(grey, latents):
    model, images = grey
    collection = model.checked_images(images)
    figure = plots.plot_fits(model, collection, latents, [4, 1])
    assert_shown(pictures(figure), pictures(plots.plot_fits(model, images, latents, [4, 1])))
