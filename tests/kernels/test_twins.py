"""What exists twice, once for processors and once for GPUs, and why: loops, never formulas."""

import ast
from pathlib import Path

import anamorph

KERNELS = Path(anamorph.__file__).parent / "kernels"

# Functions of the same name in `kernels.cpu` and `kernels.cuda`. Their arithmetic comes from
# `kernels.formulas`; what differs is how they go over voxels and memory.
TWINS = {
    "warps": {
        "pull_voxels": "some hundreds of voxels located at a time, or one thread per voxel",
        "push_voxels": "one thread per image, or atomic additions",
        "slope_voxels": "some hundreds of voxels located at a time, or one thread per voxel",
    },
    "jacobians": {
        "multiply_transposed_jacobian": "runs of rows, or sums in registers",
        "multiply_jacobian": "runs of rows, or sums in registers",
    },
    "steps": {
        "transposed_jacobian_step": "pieces of rows in cache, or one thread per voxel",
        "compose_step": "gathers from all neighbours, or from the corners of the cell",
    },
    "spectrum": {"multiply_symbol": "rows of lanes, or tiles of some fields"},
    "derivatives": {
        "image_gradients": "rows, or one thread per voxel",
        "shape_derivatives": "pieces of rows in cache, or sums in registers",
        "latent_derivatives": "products two rows by two, or matrix products by CuPy",
    },
    "stencils": {
        "bend": "stretches of voxels in cache, or one thread per place",
        "apply_operator": "stretches of voxels in cache, or one thread per place",
        "prolong_axis": "rows, or one thread per fine voxel",
        "fill_halo": "copies of rows, or one thread per place",
        "restrict_axis": "adds rows to coarse voxels, or gathers for each coarse voxel",
    },
    "smoothing": {
        "invert_blocks": "stretches of voxels in cache, or one thread per place",
        "relax": "stretches of voxels in cache, or one thread per place",
        "add_scaled": "rows shared by threads, or one thread per place",
        "scale_and_add": "rows shared by threads, or one thread per place",
        "sum_products": "one sum per column, or one sum per thread",
    },
    "likelihood_loops": {
        "channel_loop": "the loop of one likelihood, with its formulas",
        "class_loop": "the loop of one likelihood, with its formulas",
    },
}
# The same for functions in files of different names.
ELSEWHERE = {
    "wrapped": "places are counted by remainders that are rarely needed, or by multiplications",
}
# Formulas that likelihoods use, each for both targets.
FOR_LIKELIHOODS = {"exp_of_nonpositive", "log1p_of_fraction"}


def functions(path):
    """Return the names of the functions of a file, the private ones without their underscore."""
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name.lstrip("_") for node in nodes if isinstance(node, ast.FunctionDef)}


def names(path):
    """Return all names that a file uses."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def test_what_exists_twice_is_listed():
    for_processors, for_devices = (
        {(path.stem, name) for path in (KERNELS / target).glob("*.py") for name in functions(path)}
        for target in ("cpu", "cuda")
    )
    listed = {(module, name) for module, twins in TWINS.items() for name in twins}
    assert for_processors & for_devices == listed
    elsewhere = {name for _, name in for_processors} & {name for _, name in for_devices}
    assert elsewhere == {name for _, name in listed} | set(ELSEWHERE)


def test_each_formula_serves_both_targets():
    formulas = set().union(*map(functions, (KERNELS / "formulas").glob("*.py")))
    assert len(formulas) > 15
    for target in ("cpu", "cuda"):
        used = set().union(*map(names, (KERNELS / target).glob("*.py")))
        assert formulas - FOR_LIKELIHOODS - used == set(), f"not used in kernels/{target}"


def test_no_formula_is_written_again():
    formulas = set().union(*map(functions, (KERNELS / "formulas").glob("*.py")))
    for target in ("cpu", "cuda"):
        for path in (KERNELS / target).glob("*.py"):
            assert not formulas & functions(path), path
