"""A coordinator with one colluding site: the site signs what makes a forged total pass.

Checksums alone would not catch this, since nobody has opened the hashes. A witness does: a site
that is drawn after all hashes are fixed compares masked answers with their hashes and checksums.
"""

import pytest

from anamorph.federation import VerificationError
from anamorph.federation.masking.checksums import Checksums, challenge_of
from anamorph.federation.masking.field import PRIME
from tests.federation.attacks.cheating import Meddling, forge_totals, log_of
from tests.federation.conftest import fit, sites


class Conspiracy(Meddling):
    """Corrects the checksum of the colluding site for what was added to the total."""

    SHIFT = 2**35

    def __init__(self, inner, monkeypatch, colluder, shows_changed_answer=False):
        super().__init__(inner, self._tell, self._hear)
        forge_totals(monkeypatch, "mean_derivatives", self.SHIFT)
        self.colluder = inner._agents[colluder]
        self.shows_changed_answer = shows_changed_answer
        self.has_happened = False

    def _tell(self, name, message):
        if message["do"] == "reveal":
            self.numbers = {n: given["number"] for n, given in message["totals"].items()}
        shown = message.get("masked", {})
        if self.has_happened and self.colluder.name in shown and self.shows_changed_answer:
            changed = {self.colluder.name: self._shifted(shown[self.colluder.name])}
            return message | {"masked": shown | changed}
        return None

    def _hear(self, name, message, answer):
        if message["do"] == "reveal" and name == self.colluder.name and self._is_time():
            self.has_happened = True
            return answer | self._signed_checksums()
        return None

    def _is_time(self):
        return self.question == "mean_derivatives"

    def _shifted(self, block):
        block, place = block.copy(), len(block) // 2
        block[place] = (int(block[place]) + self.SHIFT) % PRIME
        return block

    def _signed_checksums(self):
        """Return checksums of the colluder's answer with the shift added to it."""
        current = self.colluder._asked.round
        challenge = challenge_of(current.binding.data, current.total_digest, self.numbers)
        values = Checksums.of(challenge, [self._shifted(block) for block in current._masked])
        claim = current.binding.statement("checksums", self.colluder.name, challenge, *values)
        return {"values": list(values), "signature": self.colluder.identity.sign(claim)}


@pytest.mark.parametrize("colluder", ["site1", "site2", "site3"])
@pytest.mark.parametrize(
    ("shows_changed_answer", "reason"),
    [(False, "signed a checksum that its answer does not have"), (True, "not the one it signed")],
)
def test_the_witness_finds_a_forged_total(
    tmp_path, monkeypatch, colluder, shows_changed_answer, reason
):
    inner = sites(tmp_path)
    conspiracy = Conspiracy(inner, monkeypatch, colluder, shows_changed_answer)
    with pytest.raises(VerificationError, match=f"{colluder}.*{reason}"):
        fit(conspiracy)
    assert conspiracy.has_happened
    honest = [name for name in inner.names if name != colluder]
    told = [line["text"] for name in honest for line in log_of(inner, name, "stopped")]
    assert any(colluder in text for text in told)


def test_without_witnesses_it_would_pass(tmp_path, monkeypatch):
    """The attack itself is sound: take the witnesses away, and all sites believe the total."""
    monkeypatch.setattr("anamorph.federation.site.round.witnesses_of", lambda *_: {})
    monkeypatch.setattr("anamorph.federation.coordinator.round.witnesses_of", lambda *_: {})
    inner = sites(tmp_path)
    conspiracy = Conspiracy(inner, monkeypatch, "site2")
    fit(conspiracy)
    assert conspiracy.has_happened
    assert not any(log_of(inner, name, "stopped") for name in inner.names)


def test_a_verdict_that_is_missing_or_forged_is_noticed(tmp_path):
    for change in (lambda verdicts: {}, lambda verdicts: dict.fromkeys(verdicts, b"signed")):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))

        def tell(name, message, change=change):
            if message.get("verdicts"):
                return message | {"verdicts": change(message["verdicts"])}
            return None

        inner = sites(folder)
        with pytest.raises(Exception, match=r"verdict of|not signed by it"):
            fit(Meddling(inner, tell))
        lines = log_of(inner, "site1", "stopped") + log_of(inner, "site1", "refused")
        assert lines
