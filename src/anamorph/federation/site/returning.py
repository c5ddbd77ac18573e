"""How a site that was away takes over the state of the others.

It was not there when totals were verified, so it must be given a state. It takes one only if every
other site signs that it has the same, up to rounding: each projects its own state at random, under
a number that the returning site draws when it has the whole state. The coordinator cannot know it
before, so another state does not pass.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamorph.arrays.typing import Float64Array
from anamorph.federation.protocol.binding import statement
from anamorph.federation.protocol.errors import MessageError, StaleStepError, VerificationError
from anamorph.federation.protocol.identity import Identity
from anamorph.federation.protocol.shared_state import shared_arrays, shared_facts
from anamorph.federation.protocol.sketches import sketch, sketches_differ
from anamorph.federation.protocol.wire import Message
from anamorph.federation.site.states import KeptState
from anamorph.fitting.objective import LatentSums
from anamorph.fitting.state import State, Turn
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings
from anamorph.storage.modelfile import parameters_from

# In float64; images are in float32.
_SMALL = {
    *("basis_energy", "latent_precision", "noise_precision"),
    *("latent_scatter", "covariance_sum", "transform", "step", "numbers", "background"),
}


def signed_sketch(identity: Identity, fit: str, kept: KeptState, nonce: bytes) -> Message:
    """Return a sketch of a state under somebody's number, signed."""
    values = sketch(shared_arrays(kept.state), nonce)
    facts = shared_facts(kept.state, kept.transcript, kept.norms, kept.roster)
    return {
        "values": values,
        "facts": facts,
        "signature": identity.sign(_claim(identity.name, fit, nonce, values, facts)),
    }


def _claim(name: str, fit: str, nonce: bytes, values: Float64Array, facts: Message) -> bytes:
    numbers = np.ascontiguousarray(values, np.float64).tobytes()
    return statement("state", name, fit, nonce, numbers, json.dumps(facts, sort_keys=True))


class ReturningState:
    """A state that arrives at a site which was away, array by array.

    Parameters
    ----------
    settings : Settings
        Of the fit; they give the shapes of all arrays.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._arrays: dict[str, NDArray[Any]] = {}
        self._n_arrived: dict[str, int] = {}
        self._facts: Message = {}
        self._nonce = b""

    def take_block(self, name: str, start: int, values: NDArray[Any]) -> None:
        """Add a block to one array."""
        if self._nonce:
            raise StaleStepError("the state is complete: it cannot be changed any more")
        shape = self._shapes().get(name)
        if shape is None:
            raise MessageError(f"a state has no {name!r}")
        dtype = np.float64 if name in _SMALL else np.float32
        if start == 0:
            if name == "numbers":  # as long as the objective
                shape = (min(values.size, 10**6),)
            self._arrays[name] = np.empty(shape, dtype)
            self._n_arrived[name] = 0
        if name not in self._arrays or start != self._n_arrived[name]:
            raise StaleStepError(f"a block of {name} was lost: send it again")
        flat, stop = self._arrays[name].reshape(-1), start + values.size
        if stop > len(flat) or values.dtype != dtype or not np.isfinite(values).all():
            raise MessageError(f"{name} must have shape {shape}, and finite numbers")
        flat[start:stop] = values.reshape(-1)
        self._n_arrived[name] = stop

    def complete(self, facts: Any, iteration: int) -> bytes:
        """Take the facts that go with the arrays; return the number that seeds sketches."""
        names = self._shapes().keys()
        if self._arrays.keys() != names or any(
            self._n_arrived[name] != array.size for name, array in self._arrays.items()
        ):
            raise StaleStepError("the state is incomplete here: send all of it again")
        expected = {"iteration", "n_images", "transcript", "norms", "roster"}
        if not isinstance(facts, dict) or facts.keys() != expected:
            raise MessageError(f"the facts of a state are {', '.join(sorted(expected))}")
        if facts["iteration"] != iteration or len(self._arrays["numbers"]) != 1 + iteration:
            raise MessageError("the state is not the one after that iteration")
        self._facts, self._nonce = facts, secrets.token_bytes(32)
        return self._nonce

    def confirmed(
        self,
        identity: Identity,
        fit: str,
        roster: Sequence[str],
        sketches: Mapping[str, Message],
    ) -> KeptState:
        """Return the state, if all other sites of the roster have signed that it is theirs."""
        if not self._nonce:
            raise StaleStepError("there is no state here to confirm")
        nonce, self._nonce = self._nonce, b""
        others = set(roster) - {identity.name}
        if sketches.keys() != others or len(others) < 2:
            raise VerificationError("all other sites, and at least two, must confirm a state")
        own = sketch(self._arrays, nonce)
        for name, given in sketches.items():
            claim = _claim(name, fit, nonce, given["values"], given["facts"])
            identity.verify(name, claim, given["signature"])
            if given["facts"] != self._facts or sketches_differ(own, given["values"]):
                raise VerificationError(f"the state that was sent is not the one of {name}")
        return self._kept(tuple(sorted(roster)))

    def _kept(self, roster: tuple[str, ...]) -> KeptState:
        arrays, facts = self._arrays, self._facts
        log_determinant_sum, *objective = arrays["numbers"].tolist()
        sums = LatentSums(
            facts["n_images"],
            arrays["latent_scatter"],
            arrays["covariance_sum"],
            log_determinant_sum,
        )
        parameters: Parameters = parameters_from(arrays)
        state = State(
            parameters,
            sums,
            float(arrays["step"][0]),
            tuple(objective),
            Turn(arrays["transform"], arrays["shape_basis_before"]),
            (0.0,) * len(objective),
        )
        return KeptState(
            state,
            None,
            facts["transcript"],
            facts["norms"],
            tuple(facts["roster"]),
            self._settings,
            roster,
        )

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        layout, space = self._settings.layout, self._settings.space
        n_latents, n_channels = layout.n_latents, self._settings.n_channels
        square, shape_basis = (n_latents, n_latents), (layout.n_shape, len(space), *space)
        shapes: dict[str, tuple[int, ...]] = {
            "mean": (n_channels, *space),
            "appearance_basis": (layout.n_appearance, n_channels, *space),
            "shape_basis": shape_basis,
            "basis_energy": square,
            "latent_precision": square,
            "noise_precision": (n_channels,),
            "latent_scatter": square,
            "covariance_sum": square,
            "transform": square,
            "shape_basis_before": shape_basis,
            "step": (1,),
            "numbers": (math.inf,),  # type: ignore[dict-item]
        }
        return shapes | ({"background": (2, n_channels)} if self._settings.has_poses else {})
