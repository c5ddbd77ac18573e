"""Likelihoods of images given a warped appearance: one file each."""

from anamorph.likelihoods.base import Derivatives, Likelihood
from anamorph.likelihoods.bernoulli import Bernoulli
from anamorph.likelihoods.categorical import Categorical
from anamorph.likelihoods.gaussian import Gaussian

LIKELIHOODS: dict[str, Likelihood] = {
    likelihood.name: likelihood for likelihood in (Gaussian(), Bernoulli(), Categorical())
}

__all__ = ["LIKELIHOODS", "Bernoulli", "Categorical", "Derivatives", "Gaussian", "Likelihood"]
