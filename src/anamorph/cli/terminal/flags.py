"""What arguments of the estimator are called on the command line and in TOML files."""

from __future__ import annotations

#: Flags by the name of the argument of `ShapeAppearanceModel`.
FLAGS = {
    "n_components": "--components",
    "likelihood": "--likelihood",
    "latents": "--latents",
    "shape_penalty": "--shape-penalty",
    "appearance_penalty": "--appearance-penalty",
    "mean_penalty": "--mean-penalty",
    "balance": "--balance",
    "prior_dof": "--prior-dof",
    "n_iter": "--iterations",
    "tol": "--tol",
    "n_steps": "--steps",
    "voxel_size": "--voxel-size",
    "channel_axis": "--channel-axis",
    "decimation": "--decimation",
    "n_threads": "--threads",
    "device": "--device",
    "memory_budget": "--memory",
    "random_state": "--seed",
}
#: Keys of TOML files, and the arguments that they set.
KEYS = {flag.removeprefix("--"): name for name, flag in FLAGS.items()}
