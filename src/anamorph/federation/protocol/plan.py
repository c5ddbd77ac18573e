"""The plan of a fit: what the coordinator proposes, and all sites agree on before the first sum."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from anamorph.arrays.typing import Float64Array
from anamorph.federation.protocol.agreement import Agreement
from anamorph.federation.protocol.binding import next_transcript
from anamorph.fitting.run import Ending
from anamorph.model.settings import Settings


@dataclass(frozen=True)
class Plan:
    """What a fit is to do, as the coordinator proposes and all sites agree.

    Attributes
    ----------
    name : str
        Of the fit.
    settings : Settings
    seed : int
    ending : Ending
    agreement : Agreement
    """

    name: str
    settings: Settings
    seed: int
    ending: Ending
    agreement: Agreement

    @property
    def transcript(self) -> str:
        """The transcript before the first question."""
        facts = [self.name, asdict(self.settings), self.seed, asdict(self.ending)]
        counts = [dict(self.agreement.counts), self.agreement.exponent]
        return next_transcript("", json.dumps([*facts, *counts]).encode())

    @property
    def fixed(self) -> str:
        """Digest of what stays the same whenever the fit is resumed: all but when it ends."""
        facts = json.dumps([self.name, asdict(self.settings), self.seed])
        return next_transcript("", facts.encode())


def regrouped_transcript(transcript: str, roster: Sequence[str]) -> str:
    """Return the transcript from which a fit continues with other sites."""
    return next_transcript(transcript, json.dumps(list(roster)).encode())


def analysis_transcript(
    name: str, agreement: Agreement, model: Float64Array, arguments: Mapping[str, Any]
) -> str:
    """Return the transcript of an analysis: sites that are asked different things share no masks.

    Otherwise a total over one group at one site and another group at the others, less the honest
    total, would be about that site alone.

    Parameters
    ----------
    name : str
    agreement : Agreement
    model : (n, 3)
        Summary of the model, as the coordinator sent it.
    arguments : dict
        Of the question.
    """
    facts = [name, dict(agreement.counts), agreement.exponent, dict(arguments)]
    asked = json.dumps(facts, sort_keys=True).encode()
    return next_transcript("", asked, np.ascontiguousarray(model, np.float64).tobytes())
