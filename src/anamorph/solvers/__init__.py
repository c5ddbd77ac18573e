"""(H + L) x = g for fields of small matrices, by full multigrid."""

from anamorph.solvers.solve import Solution, solve_field, solve_velocity

__all__ = ["Solution", "solve_field", "solve_velocity"]
