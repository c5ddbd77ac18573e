"""Golden arrays that the package makes, and that JavaScript must make as well."""

from __future__ import annotations

import json

import numpy as np
import scipy.fft

from anamorph.explorer.encoding import (
    packed_bytes,
    packed_floats,
    packed_integers,
    restored,
    rounded,
)
from anamorph.geometry import jacobian_determinant, momentum, pull, shoot, velocity
from anamorph.geometry.operators import packed_symbol
from anamorph.model.generator import Generator
from tests import simulated

PENALTY = (0.001, 0.01, 1.0, 0.1, 0.2)
# Radices 2 to 5, other primes, and one so large that it is a convolution.
SPACES = [(28, 28), (15, 22), (7, 49), (1, 6), (12, 101), (6, 10, 7), (5, 4, 9), (8, 13, 6)]
LIKELIHOODS = ["gaussian", "bernoulli", "categorical", "poisson"]


class Golden:
    """A folder of cases: facts in one JSON file, arrays in files of raw numbers."""

    def __init__(self, folder):
        self.folder = folder
        self.cases = []

    def add(self, kind, facts, **arrays):
        """Keep a case; floats become float32, and bytes stay."""
        names = {}
        for name, array in arrays.items():
            file = f"{kind}-{len(self.cases)}-{name}.bin"
            data = array if isinstance(array, bytes) else _raw(array)
            (self.folder / file).write_bytes(data)
            names[name] = file
        self.cases.append({"kind": kind, "arrays": names, **facts})

    def write(self):
        (self.folder / "cases.json").write_text(json.dumps(self.cases), encoding="utf-8")


def _raw(array):
    array = np.asarray(array)
    kind = np.float32 if array.dtype.kind == "f" else array.dtype
    return np.ascontiguousarray(array, kind).tobytes()


def write_golden(folder):
    """Write all cases to a folder."""
    golden = Golden(folder)
    generator = np.random.default_rng(0)
    for space in SPACES:
        d = len(space)
        field = generator.standard_normal(space)
        spectrum = scipy.fft.rfftn(field)
        golden.add("fft", {"space": space}, field=field, re=spectrum.real, im=spectrum.imag)
        if 1 in space:
            continue
        sizes = tuple(np.linspace(1, 1.7, d))
        operator, inverse = (
            packed_symbol(PENALTY, space, sizes, np.dtype(np.float64), inverse=is_inverse)
            for is_inverse in (False, True)
        )
        grid = {"space": space, "voxelSize": sizes, "penalty": PENALTY}
        golden.add("symbol", grid, operator=operator.T, inverse=inverse.T)
        _add_warps(golden, generator, space, sizes)
    for likelihood in LIKELIHOODS:
        for space, layout in [((13, 10), "joint"), ((8, 6, 7), "separate"), ((9, 8), "shape")]:
            _add_pictures(golden, likelihood, space, layout)
    _add_files(golden, generator)
    golden.write()


def _add_warps(golden, generator, space, sizes):
    d = len(space)
    v = (1.2 * simulated.smooth(generator, (d, *space), d) + 0.3).astype(np.float32)
    images = generator.standard_normal((2, *space)).astype(np.float32)
    displacement = (3 * v).astype(np.float32)  # farther than a voxel, and around the grid
    golden.add(
        "pull", {"space": space}, images=images, displacement=displacement,
        pulled=pull(images, displacement),
    )  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = -np.log(jacobian_determinant(displacement))
    golden.add("growth", {"space": space}, displacement=displacement, growth=growth)
    for penalty in (PENALTY, (0.0, *PENALTY[1:])):
        facts = {"space": space, "voxelSize": sizes, "penalty": penalty}
        u = momentum(v, penalty, sizes)
        golden.add("operator", facts, v=v, u=u, back=velocity(u, penalty, sizes))
        for n_steps in (1, 8):
            moved = shoot(v, penalty, sizes, n_steps)
            golden.add("shoot", facts | {"nSteps": n_steps}, v=v, displacement=moved)
    long = (2 * v).astype(np.float32)  # steps of more than a voxel
    golden.add(
        "shoot",
        {"space": space, "voxelSize": sizes, "penalty": PENALTY, "nSteps": 2},
        v=long,
        displacement=shoot(long, PENALTY, sizes, 2),
    )


def _add_pictures(golden, likelihood, space, layout):
    settings, parameters, latents, _ = simulated.random_problem(
        likelihood, layout, n_images=2, space=space, voxel_size=(1.0, 1.5, 1.2)[: len(space)]
    )
    model = Generator(settings, parameters)
    n_appearance, shape = settings.layout.n_appearance, settings.layout.shape
    modes = [
        {
            "appearance": k if k < n_appearance else None,
            "shape": k - shape.start if shape.start <= k < shape.stop else None,
        }
        for k in range(settings.layout.n_latents)
    ]
    facts = {
        "space": space,
        "voxelSize": settings.voxel_size,
        "likelihood": likelihood,
        "nChannels": settings.n_channels,
        "penalty": settings.shape_penalty,
        "nSteps": settings.n_steps,
        "modes": modes,
        "z": latents[0].tolist(),
    }
    golden.add(
        "picture", facts, mean=parameters.mean, appearance=parameters.appearance_basis,
        shape=parameters.shape_basis, both=model.expected_images(latents[:1])[0],
        onlyShape=model.expected_images(latents[:1], coloured=False)[0],
        onlyAppearance=model.expected_images(latents[:1], warped=False)[0],
    )  # fmt: skip


def _add_files(golden, generator):
    for space in [(9, 7), (5, 6, 4)]:
        fields = np.float32(5 * generator.standard_normal((2, *space)))
        integers, units = rounded(fields)
        facts = {"space": space, "units": units.tolist()}
        packed = packed_integers(integers)
        golden.add("integers", facts, packed=packed, fields=restored(integers, units))
        golden.add("floats", {}, packed=packed_floats(fields), fields=fields)
        image = generator.integers(0, 256, (2, *space), dtype=np.uint8)
        golden.add("bytes", {"length": space[-1]}, packed=packed_bytes(image), image=image)
