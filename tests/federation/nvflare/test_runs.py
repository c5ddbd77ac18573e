"""One identity, one running site: what tells a copy from the original."""

from __future__ import annotations

import shutil

import pytest

pytest.importorskip("nvflare")

from anamorph.federation import ConsortiumError, MessageError, SignatureError
from anamorph.federation.nvflare.runs import MetSites, RunRecord, locked
from anamorph.federation.protocol.errors import CertificateError, DuplicateSiteError
from anamorph.federation.protocol.identity import new_identities
from anamorph.federation.protocol.wire import pack, unpack


@pytest.fixture
def london(tmp_path):
    """The folder of a site that has met others in two jobs, and its identity."""
    folder = tmp_path / "london"
    folder.mkdir()
    return folder


@pytest.fixture
def identities():
    return dict(zip(("london", "paris"), new_identities(["london", "paris"]), strict=True))


@pytest.fixture
def paris(tmp_path):
    return MetSites(tmp_path / "met.json")


def show(folder, identities, paris, *, begins=True):
    """Let a process with London's folder introduce itself to Paris, in a new job."""
    record = RunRecord(folder)
    if begins:
        record.begin()
    introduction = unpack(pack(record.introduction(identities["london"])))
    paris.meet(identities["paris"], {"london": introduction})
    return introduction


def test_a_site_is_met_again_in_every_job(london, identities, paris):
    for _ in range(3):
        show(london, identities, paris)
    show(london, identities, paris, begins=False)  # the same run may be shown twice


def test_jobs_that_others_did_not_see_are_no_matter(london, identities, paris):
    show(london, identities, paris)
    for _ in range(3):
        RunRecord(london).begin()
    show(london, identities, paris)


def test_a_copy_with_an_empty_folder_is_refused(london, identities, paris, tmp_path):
    """Finding 7: a copied kit with a fresh ledger."""
    show(london, identities, paris)
    (tmp_path / "copy").mkdir()
    with pytest.raises(DuplicateSiteError, match="does not continue the 1 runs"):
        show(tmp_path / "copy", identities, paris)
    show(london, identities, paris)  # the original is as welcome as before


def test_a_copy_of_an_earlier_day_is_refused(london, identities, paris, tmp_path):
    show(london, identities, paris)
    shutil.copytree(london, tmp_path / "copy")
    show(london, identities, paris)
    for _ in range(3):
        with pytest.raises(DuplicateSiteError, match="copy of its kit"):
            show(tmp_path / "copy", identities, paris)


def test_of_two_copies_the_second_is_refused(london, identities, paris, tmp_path):
    show(london, identities, paris)
    shutil.copytree(london, tmp_path / "copy")
    show(tmp_path / "copy", identities, paris)  # it cannot be told from the original
    with pytest.raises(DuplicateSiteError, match="ask there"):
        show(london, identities, paris)


def test_old_introductions_do_not_pass_for_new_ones(london, identities, paris):
    old = show(london, identities, paris)
    show(london, identities, paris)
    with pytest.raises(DuplicateSiteError):
        paris.meet(identities["paris"], {"london": old})


def test_introductions_are_signed(london, identities, paris):
    record = RunRecord(london)
    record.begin()
    forged = record.introduction(identities["london"]) | {"runs": ["0" * 32]}
    with pytest.raises(SignatureError, match="not signed by it"):
        paris.meet(identities["paris"], {"london": forged})
    with pytest.raises(CertificateError, match="eve has no certificate"):
        paris.meet(identities["paris"], {"eve": forged})


@pytest.mark.parametrize(
    "change",
    [{"runs": []}, {"runs": "abc"}, {"runs": [3]}, {"time": None}, {"signature": "text"}],
)
def test_an_introduction_of_wrong_types_is_refused(london, identities, paris, change):
    record = RunRecord(london)
    record.begin()
    wrong = record.introduction(identities["london"]) | change
    with pytest.raises(MessageError, match="introduction of london"):
        paris.meet(identities["paris"], {"london": wrong})


def test_a_site_that_restored_a_backup_is_accepted_again(london, identities, paris, tmp_path):
    show(london, identities, paris)
    shutil.copytree(london, tmp_path / "backup")
    show(london, identities, paris)
    with pytest.raises(DuplicateSiteError):
        show(tmp_path / "backup", identities, paris)
    paris.forget("london")
    show(tmp_path / "backup", identities, paris)


def test_a_ledger_that_was_removed_or_cut_is_noticed(london):
    ledger = london / "ledger.jsonl"
    ledger.write_text('{"fit": "a"}\n{"fit": "b"}\n{"fit"')  # half a line may go
    RunRecord(london).begin()
    ledger.write_text('{"fit": "a"}\n{"fit": "b"}\n{"fit": "c"}\n')
    RunRecord(london).begin()
    for text in ('{"fit": "a"}\n', '{"fit": "b"}\n{"fit": "a"}\n{"fit": "c"}\n', ""):
        ledger.write_text(text)
        with pytest.raises(DuplicateSiteError, match="removed, cut or is a copy"):
            RunRecord(london).begin()
    ledger.unlink()
    with pytest.raises(DuplicateSiteError):
        RunRecord(london).begin()


def test_a_lock_is_held_by_one(tmp_path):
    path = tmp_path / "lock"
    with (
        locked(path, "it is mine"),
        pytest.raises(ConsortiumError, match="it is mine"),
        locked(path, "it is mine"),
    ):
        pass
    with locked(path, "it is free again"):
        pass
