"""Types of arrays: the one place where they get their names.

Arrays may be NumPy's or CuPy's (see `namespaces`); types name those of NumPy for both.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Fields and images, float32 as a rule.
Array = NDArray[np.floating]
Float32Array = NDArray[np.float32]
#: Small matrices, latents, objectives and other sums.
Float64Array = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
