"""What all sites have in common of a state: it can be sent to one that was away, and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.federation.protocol.wire import Message
from anamorph.fitting.state import State
from anamorph.storage.checkpoint import state_tensors


def shared_arrays(state: State) -> dict[str, NDArray[Any]]:
    """Return everything numerical that a state consists of, by name."""
    arrays, facts = state_tensors(state)
    numbers = [facts["log_determinant_sum"], *facts["objective"]]
    # Each is compared by its own norm: that of the objective would hide any step.
    return {**arrays, "step": np.array([facts["step"]]), "numbers": np.array(numbers, np.float64)}


def shared_facts(
    state: State, transcript: str, norms: Mapping[str, list[float]], roster: Sequence[str]
) -> Message:
    """Return what must be the same at all sites to the last digit.

    Parameters
    ----------
    state : State
    transcript : str
        Digest of all that led there.
    norms : dict
        Usual norms of derivatives, by question (`Bounds.norms`).
    roster : list of str
        The sites of the last iteration.
    """
    return {
        "iteration": len(state.objective),
        "n_images": state.latents.n_images,
        "transcript": transcript,
        "norms": dict(norms),
        "roster": list(roster),
    }
