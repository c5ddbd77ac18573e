"""An analysis at one site, under a model that the site has computed itself.

A coordinator that could choose the model would choose what sums of latents tell. So it only says
which model it means, by a summary of its parameters, and the site looks for it among those of the
fits that it took part in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anamorph.arrays.typing import Float64Array
from anamorph.federation.protocol.agreement import Agreement
from anamorph.federation.protocol.answers import Answer
from anamorph.federation.protocol.errors import PolicyError
from anamorph.federation.protocol.plan import analysis_transcript
from anamorph.federation.protocol.sketches import differ, digest_of_arrays
from anamorph.federation.site.group_sums import GroupAnswers
from anamorph.federation.site.holdings import Holdings
from anamorph.federation.site.part import Part
from anamorph.federation.site.replica import Question
from anamorph.federation.site.states import StateStore
from anamorph.fitting.limits import Limits, shrink
from anamorph.fitting.sums import Sums
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings
from anamorph.storage.modelfile import parameter_arrays


class SiteAnalysis(Part):
    """What a site keeps during an analysis.

    Parameters
    ----------
    name : str
    settings : Settings
    parameters : Parameters
        Of a fit that this site took part in.
    model : (n, 3)
        Summary of that model, as the coordinator sent it.
    fit : str
        Name of that fit.
    agreement : Agreement
    roster : tuple of str
    holdings : Holdings
    record : Path
        Of all analyses of this site.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        parameters: Parameters,
        model: Float64Array,
        fit: str,
        agreement: Agreement,
        roster: Sequence[str],
        holdings: Holdings,
        record: Path,
    ) -> None:
        super().__init__(settings, agreement, tuple(sorted(roster)))
        self.name = name
        self._model = model
        self._parameters, self._fit, self._holdings = parameters, fit, holdings
        self._groups = GroupAnswers(record, holdings.identities, holdings.columns, holdings.policy)
        self._arguments: dict[str, Any] = {}
        self._n_masking = 1
        self._latents: Float64Array | None = None

    def take_arguments(self, arguments: Mapping[str, Any], is_masked: bool) -> None:
        """Take the arguments of the question, which were checked, and whether it is masked."""
        self._arguments = dict(arguments)
        self.transcript = analysis_transcript(self.name, self._agreement, self._model, arguments)
        self._n_masking = len(self.roster) if is_masked else 1

    def question(self) -> Question:
        """Return the question that is answered."""
        return Question("statistics", self._parameters, None, self._arguments)

    def content(self, question: Question) -> str:
        """Return the digest of everything that the answer depends on here.

        Exact sums under models of one fit count as one content, whatever their groups are called:
        groups add up to others, and the model of an iteration is nearly that of the one before.
        """
        if question.arguments["privacy"] is None:
            return f"exact statistics of {self._fit}"
        model = digest_of_arrays(parameter_arrays(self._parameters))
        facts = json.dumps([question.name, question.arguments, model], sort_keys=True)
        return hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()

    def answer(self, question: Question, limits: Limits) -> Answer:
        """Answer the question, with latents within limits."""
        held = self._holdings
        with held.machine.threads():
            if self._latents is None:
                model = self._settings.for_new_images
                self._latents = held.encoded(model, self._parameters).latents
        latents = self._latents.copy()
        shrink(latents, limits.latent)
        sums = self._groups.answer(latents, question.arguments, self._n_masking)
        return Answer(sums, self.schema(question))

    def give(self, question: Question, total: Sums, decisions: Sequence[bool], fact: bytes) -> None:
        """Do nothing: an analysis asks one question, and nothing follows from its total."""

    def keep_held(self) -> None:
        """Do nothing: an analysis keeps no state."""

    def _n_images(self, total: Sums) -> int:
        """Return the number of images of the total: a group may leave some out."""
        return min(total.n_images, super()._n_images(total))


def lend_model(folder: Path, settings: Settings, parameters: Parameters) -> None:
    """Let a model be analysed that this site has not computed: somebody here trusts it.

    Parameters
    ----------
    folder : Path
        Holds a folder for each fit.
    settings : Settings
    parameters : Parameters
    """
    StateStore(folder / "lent").save_model(settings, parameters)


def find_model(folder: Path, given: Float64Array) -> tuple[Settings, Parameters, str]:
    """Return the model that a summary stands for, and the name of the fit of this site.

    Parameters
    ----------
    folder : Path
        Holds a folder for each fit.
    given : (n, 3)
        Summary of the parameters.

    Raises
    ------
    PolicyError
        If this site took part in no fit that ended in such a model.
    """
    for fit in sorted(folder.glob("*")) if folder.is_dir() else []:
        for settings, parameters in StateStore(fit).models():
            if not differ(parameter_arrays(parameters), given):
                return settings, parameters, fit.name
    raise PolicyError(
        "this site took part in no fit that ended in this model: it analyses only models that it "
        "has computed itself"
    )
