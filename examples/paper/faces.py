"""Faces: what shape and appearance explain of photographs, beside principal components.

    python -m examples.paper.faces --data FOLDER

A model is fitted to the photographs of four people in five, neutral and smiling; the others are
held out. Fits, modes, random faces and arithmetic on latents are drawn as in section 3.1 of the
paper, beside a principal component analysis with as many components.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.decomposition import PCA

from anamorph import ShapeAppearanceModel, preset
from anamorph.plots import plot_arithmetic, plot_modes
from anamorph.plots.panels import draw_rows
from examples.paper.experiment import Experiment, parser
from examples.paper.images import Array, Faces, faces

Float64Array = NDArray[np.float64]

_EVERY_FIFTH = 5
_EVERY_FOURTH = 4
_N_SHOWN = 6
_PART_NAMES = {
    "both": "shape and\nappearance",
    "shape": "shape only",
    "appearance": "appearance\nonly",
}


@dataclass(frozen=True)
class Components:
    """Principal components of images, with latents of unit variance.

    Attributes
    ----------
    fitted : PCA
    shape : tuple of int
        Of an image, (rows, columns, 3).
    """

    fitted: PCA
    shape: tuple[int, ...]

    @classmethod
    def of(cls, images: Array, n_components: int) -> Components:
        """Fit principal components to images (N, rows, columns, 3)."""
        fitted = PCA(n_components, whiten=True, svd_solver="full").fit(
            images.reshape(len(images), -1)
        )
        return cls(fitted, images.shape[1:])

    def transform(self, images: Array) -> Array:
        """Return latents (N, K)."""
        return np.asarray(self.fitted.transform(images.reshape(len(images), -1)))

    def inverse_transform(self, latents: Array) -> Array:
        """Return images (N, rows, columns, 3)."""
        return np.asarray(self.fitted.inverse_transform(latents).reshape(-1, *self.shape))


@dataclass(frozen=True)
class Study:
    """Faces that models were fitted to, faces that were held out, and the models.

    Attributes
    ----------
    experiment : Experiment
    training, held_out : Faces
        Of different people.
    fitted : Faces
        Those of every fourth person of the training faces, for whom fits are measured.
    model : ShapeAppearanceModel
    components : Components
        As many as the model has latents.
    """

    experiment: Experiment
    training: Faces
    fitted: Faces
    held_out: Faces
    model: ShapeAppearanceModel
    components: Components

    @classmethod
    def make(cls, experiment: Experiment) -> Study:
        """Split faces by person, and fit both models to the larger part."""
        everybody = faces(experiment)
        is_held_out = _of_every(_EVERY_FIFTH, everybody)
        training, held_out = everybody.take(~is_held_out), everybody.take(is_held_out)
        fitted = training.take(_of_every(_EVERY_FOURTH, training))
        model = experiment.model("model", lambda checkpoint: _fit(experiment, training, checkpoint))
        model.n_threads = experiment.n_threads
        components = Components.of(training.images, len(model.latent_precision_))
        return cls(experiment, training, fitted, held_out, model, components)

    @property
    def parts(self) -> dict[str, Faces]:
        """The faces that are measured, by name."""
        return {"fitted": self.fitted, "held_out": self.held_out}

    @cached_property
    def latents(self) -> dict[str, Float64Array]:
        """Latents of these faces, by name: all are found anew under the fitted model."""
        return {name: self._found(name, part.images) for name, part in self.parts.items()}

    def _found(self, name: str, images: Array) -> Float64Array:
        step = f"latents-{name}"
        return self.experiment.arrays(step, lambda: {"z": self.model.transform(images)})["z"]


def _of_every(number: int, photographs: Faces) -> NDArray[np.bool_]:
    """Return which faces are of every second, third, ... person."""
    return np.isin(photographs.person, np.unique(photographs.person)[::number])


def _fit(experiment: Experiment, training: Faces, checkpoint: Path) -> ShapeAppearanceModel:
    """Fit a model with the settings of the paper, whose pixels were a third as wide."""
    arguments = preset("faces") | {"channel_axis": -1, "voxel_size": (3.0, 3.0)}
    arguments |= {"shape_penalty": (1e-3, 0.0, 16.0, 1.0, 1.0)}  # not the preset's
    arguments |= {"n_components": 32, "n_iter": 12}
    if experiment.is_small:
        arguments |= {"n_components": 4, "n_iter": 2}
    model = ShapeAppearanceModel(**arguments | experiment.computing)
    return model.fit(
        training.images,
        checkpoint=checkpoint,
        callback=lambda step: experiment.say(str(step)),
    )


def run(experiment: Experiment) -> None:
    """Fit, measure and draw."""
    study = Study.make(experiment)
    experiment.publish(
        "fits",
        {
            "n_people": len(np.unique(study.training.person)),
            "n_people_measured": len(np.unique(study.fitted.person)),
            "n_people_held_out": len(np.unique(study.held_out.person)),
            "n_components": study.components.fitted.n_components_,
            "n_iter": study.model.n_iter_,
            "seconds_of_iterations": sum(study.model.origin_.seconds),
            "root_mean_squared_error": errors_of_fits(study),
        },
    )
    experiment.publish("smiles", {"root_mean_squared_error": errors_of_smiles(study)})
    n_modes = min(_N_SHOWN, len(study.model.latent_precision_))
    for name, figure in (
        ("fits", plot_fits(study, "fitted")),
        ("fits-held-out", plot_fits(study, "held_out")),
        ("modes", cast(Figure, plot_modes(study.model, range(n_modes), limits=(0, 1)))),
        ("samples", plot_random_faces(study)),
        ("arithmetic", plot_smiles(study)),
    ):
        experiment.draw(name, figure, n_colours=256)


# ---- numbers


def errors_of_fits(study: Study) -> dict[str, dict[str, float]]:
    """Return the error of what models make of faces, for both parts of the faces."""
    found = {}
    for part, photographs in study.parts.items():
        images = photographs.images
        by_model = {
            name: study.model.inverse_transform(study.latents[part], name) for name in _PART_NAMES
        }
        projected = study.components.inverse_transform(study.components.transform(images))
        found[part] = {
            "mean face": _error(study.training.images.mean(axis=0) - images),
            "principal components": _error(projected - images),
            **{name: _error(expected - images) for name, expected in by_model.items()},
        }
    return found


def errors_of_smiles(study: Study) -> dict[str, float]:
    """Return the error of smiles predicted for held-out people from their neutral faces.

    The average difference of smiling and neutral latents of people in the fit is added to the
    latents of a neutral face, and the image of that is compared with the photograph.
    """
    neutral, smiling = pairs(study.held_out)
    truth = study.held_out.images[smiling]
    latents = study.latents["held_out"][neutral]
    components = study.components.transform(study.held_out.images[neutral])
    smile = _average_smile(study.fitted, study.latents["fitted"])
    component_smile = _average_smile(study.fitted, study.components.transform(study.fitted.images))
    return {
        "neutral face": _error(study.held_out.images[neutral] - truth),
        "fit to neutral face": _error(study.model.inverse_transform(latents) - truth),
        "with a smile added": _error(study.model.inverse_transform(latents + smile) - truth),
        "fit by components": _error(study.components.inverse_transform(components) - truth),
        "components with a smile added": _error(
            study.components.inverse_transform(components + component_smile) - truth
        ),
    }


def pairs(photographs: Faces) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return, person by person, which face is neutral and which smiles."""
    neutral, smiling = [], []
    for person in np.unique(photographs.person):
        (a,) = np.flatnonzero((photographs.person == person) & ~photographs.is_smiling)
        (b,) = np.flatnonzero((photographs.person == person) & photographs.is_smiling)
        neutral.append(a)
        smiling.append(b)
    return np.array(neutral), np.array(smiling)


def _average_smile(photographs: Faces, latents: Array) -> Array:
    neutral, smiling = pairs(photographs)
    return np.asarray((latents[smiling] - latents[neutral]).mean(axis=0))


def _error(differences: Array) -> float:
    """Return the root of the mean squared difference, of colours from 0 to 1."""
    return float(np.sqrt(np.mean(np.square(differences, dtype=np.float64))))


# ---- pictures


def plot_fits(study: Study, part: str) -> Figure:
    """Draw some faces, and what the models make of them."""
    images = study.parts[part].images
    shown = np.linspace(0, len(images) - 1, _N_SHOWN).round().astype(int)
    latents = study.latents[part][shown]
    components = study.components.transform(images[shown])
    rows = [
        ("photographs", images[shown]),
        *(
            (title, study.model.inverse_transform(latents, name))
            for name, title in _PART_NAMES.items()
        ),
        ("principal\ncomponents", study.components.inverse_transform(components)),
    ]
    return _draw(study, rows)


def plot_random_faces(study: Study) -> Figure:
    """Draw random faces and their opposites, by the model and by principal components."""
    _, latents = study.model.sample(_N_SHOWN, study.experiment.seed)
    generator = np.random.default_rng(study.experiment.seed)
    components = generator.standard_normal((_N_SHOWN, study.components.fitted.n_components_))
    minus = "\N{MINUS SIGN}"
    rows = [
        ("z", study.model.inverse_transform(latents)),
        (f"{minus}z", study.model.inverse_transform(-latents)),
        ("principal\ncomponents", study.components.inverse_transform(components)),
        ("their\nopposites", study.components.inverse_transform(-components)),
    ]
    return _draw(study, rows)


def plot_smiles(study: Study) -> Figure:
    """Draw the smile of one held-out person on the face of another, three times."""
    neutral, smiling = pairs(study.held_out)
    latents = study.latents["held_out"]
    n_rows = min(3, len(neutral) - 1)
    figure = Figure((5.0, 1.75 * n_rows), layout="constrained")
    panels = figure.subfigures(n_rows, 1, squeeze=False)[:, 0]
    for row, panel in enumerate(panels):
        terms = [
            (1, latents[smiling[row]], "smiling"),
            (-1, latents[neutral[row]], "neutral"),
            (1, latents[neutral[row + 1]], "another, neutral"),
        ]
        plot_arithmetic(study.model, terms, result="smiling", limits=(0, 1), figure=panel)
    return figure


def _draw(study: Study, rows: list[tuple[str, Array]]) -> Figure:
    first = [(name, np.moveaxis(images, -1, 1)) for name, images in rows]
    return cast(Figure, draw_rows(study.model, first, None, first[0][1], (0, 1), None, None))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the experiment from the command line."""
    run(Experiment.from_options("faces", parser("faces", __doc__).parse_args(arguments)))


if __name__ == "__main__":
    main(sys.argv[1:])
