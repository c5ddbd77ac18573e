"""Elementary functions under the name by which likelihoods import them."""

from anamorph.kernels.formulas.elementary import exp_of_nonpositive, log1p_of_fraction

__all__ = ["exp_of_nonpositive", "log1p_of_fraction"]
