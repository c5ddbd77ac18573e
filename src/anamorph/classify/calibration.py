"""Making the evidence of different models comparable.

Laplace's approximation and pixels counted as independent make evidence too sure, and not by the
same for every class. A temperature and an offset per class, learnt from images that the models
have not seen, mend both: P(k | f) is proportional to exp(joint_k / temperature + offset_k), where
joint_k = ln p(f | model k) + ln P(k).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax

from anamorph.arrays.typing import Float64Array, IntArray

#: Standard deviation of the offsets in their prior, in nats. Chosen on MNIST's training digits.
OFFSET_SPREAD = 0.5

#: Nats behind the best class beyond which an image says no more: one odd image is not to decide.
_FARTHEST = 150.0


@dataclass(frozen=True)
class Calibration:
    """How joint log evidence becomes log probabilities.

    Attributes
    ----------
    temperature : float
        Nats of evidence that count as one; 1 takes evidence as it is, more says less.
    offsets : (n_classes,)
        Added after that, in nats; their mean is 0.
    """

    temperature: float
    offsets: Float64Array

    @classmethod
    def none(cls, n_classes: int) -> Calibration:
        """Return the calibration that leaves evidence as it is."""
        return cls(1.0, np.zeros(n_classes))

    @classmethod
    def learn(cls, joint: Float64Array, numbers: IntArray) -> Calibration:
        """Return the most probable temperature and offsets.

        Parameters
        ----------
        joint : (N, n_classes)
            ln p(f | model k) + ln P(k) of images that the models were not fitted to.
        numbers : (N,)
            The class of each image, from 0.
        """
        behind = np.maximum(joint - joint.max(axis=1, keepdims=True), -_FARTHEST)
        is_class = np.arange(joint.shape[1]) == numbers[:, None]

        def loss(parameters: Float64Array) -> tuple[float, Float64Array]:
            # Convex: the logits are linear in the inverse temperature and the offsets.
            slope, offsets = parameters[0], parameters[1:]
            logs = log_softmax(slope * behind + offsets, axis=1)
            excess = np.exp(logs) - is_class
            value = np.square(offsets / OFFSET_SPREAD).sum() / 2 - logs[is_class].sum()
            by_offset = excess.sum(axis=0) + offsets / OFFSET_SPREAD**2
            return float(value), np.concatenate([[np.vdot(excess, behind)], by_offset])

        start = np.concatenate([[0.1], np.zeros(joint.shape[1])])
        bounds = [(1e-3, 1.0)] + [(None, None)] * joint.shape[1]
        found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        return cls(float(1 / found[0]), np.asarray(found[1:] - found[1:].mean()))

    def log_probabilities(self, joint: Float64Array) -> Float64Array:
        """Return ln P(k | f) of each image and class, (N, n_classes), from joint log evidence."""
        return np.asarray(log_softmax(joint / self.temperature + self.offsets, axis=1))


def folds_of(numbers: IntArray, n_folds: int) -> IntArray:
    """Return the fold of each image, (N,), from 0: every class is spread evenly over them."""
    folds = np.empty(len(numbers), np.intp)
    for number in np.unique(numbers):
        members = np.flatnonzero(numbers == number)
        folds[members] = np.arange(len(members)) % n_folds
    return folds
