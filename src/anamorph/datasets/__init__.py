"""Images to try the package on: digits that ship with it, MNIST, simulated brains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anamorph.datasets.mnist import MNIST, digits, mnist
from anamorph.exports import lazy_exports

if TYPE_CHECKING:
    from anamorph.datasets.simulated import brains

__all__ = ["MNIST", "brains", "digits", "mnist"]

# The function `mnist` has the name of its module and cannot be lazy; the kernels that `brains`
# needs can.
_, __getattr__, __dir__ = lazy_exports(__name__, {"simulated": ["brains"]})
