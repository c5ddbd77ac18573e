"""Gauss-Newton systems (H + L) x = g with a small matrix H per voxel, by full multigrid."""

from anamorph.solvers.preconditioner import VelocityPreconditioner
from anamorph.solvers.solve import Solution, solve_field, solve_velocity

__all__ = ["Solution", "VelocityPreconditioner", "solve_field", "solve_velocity"]
