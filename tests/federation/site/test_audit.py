"""The audit log: chained by hashes, so that whatever was changed in it is found and named."""

import json
import multiprocessing

import pytest

from anamorph.federation.protocol.errors import StorageError
from anamorph.federation.site import audit
from anamorph.federation.site.audit import AuditLog
from anamorph.federation.site.audit_chain import check_chain, head_path


@pytest.fixture
def log(tmp_path):
    log = AuditLog(tmp_path / "audit.jsonl")
    for number in range(5):
        log.write(event="answered", question="moments", number=number)
    return log


def lines_of(log):
    return log.path.read_text().splitlines()


def write_lines(log, lines):
    log.path.write_text("".join(line + "\n" for line in lines))


def test_a_log_as_it_was_written_is_whole(log):
    report = check_chain(log.path)
    assert (report.n_lines, report.n_before_chain, report.fault) == (5, 0, "")
    assert [line["number"] for line in log.read()] == [0, 1, 2, 3, 4]
    again = AuditLog(log.path)  # after a restart
    again.write(event="refused")
    assert check_chain(log.path).fault == ""
    assert check_chain(log.path, report.head).fault == ""  # what was written down is still there


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_changed_line_is_named(log, number):
    lines = lines_of(log)
    lines[number - 1] = lines[number - 1].replace("moments", "nothing")
    write_lines(log, lines)
    report = check_chain(log.path)
    assert report.line == number
    assert f"line {number} is not the one" in report.fault


def test_a_removed_and_an_inserted_line_are_named(log):
    lines = lines_of(log)
    write_lines(log, lines[:2] + lines[3:])
    assert check_chain(log.path).line == 2
    write_lines(log, lines[1:])
    assert check_chain(log.path).line == 1
    write_lines(log, [*lines[:2], lines[1], *lines[2:]])
    assert check_chain(log.path).line == 2
    write_lines(log, [*lines[:2], '{"event": "answered"}', *lines[2:]])
    assert "line 3 is not part of the chain" in check_chain(log.path).fault


def test_a_tail_that_was_cut_off_is_noticed_and_stays_so(log):
    write_lines(log, lines_of(log)[:3])
    assert check_chain(log.path).fault == "the log ends after line 3, but 5 were written"
    log.write(event="answered")  # whoever writes on does not hide the gap
    log.write(event="answered")
    report = check_chain(log.path)
    assert report.line == 3
    assert "line 3 is not the one that line 4 was written after" in report.fault


def test_a_log_without_any_line_left_is_noticed(log):
    log.path.write_text("")
    assert "ends after line 0, but 5 were written" in check_chain(log.path).fault
    log.write(event="answered")
    assert check_chain(log.path).line == 1


def test_a_forged_log_lacks_the_head_that_was_written_down(log):
    written_down = check_chain(log.path).head
    log.path.unlink()
    head_path(log.path).unlink()
    for number in range(5):
        log.write(event="answered", question="nothing", number=number)
    assert check_chain(log.path).fault == ""  # whoever has both files can forge both
    report = check_chain(log.path, written_down)
    assert written_down in report.fault


def test_a_crash_between_a_line_and_its_head_breaks_nothing(log):
    head = head_path(log.path).read_bytes()
    log.write(event="answered")
    head_path(log.path).write_bytes(head)  # as it was before the line
    assert check_chain(log.path).fault == ""
    log.write(event="answered")
    assert check_chain(log.path).fault == ""
    assert check_chain(log.path).n_lines == 7


def test_a_crash_within_a_line_breaks_nothing(log):
    with open(log.path, "a") as file:
        file.write('{"event": "answ')
    assert check_chain(log.path).n_lines == 5
    log.write(event="answered")
    report = check_chain(log.path)
    assert (report.n_lines, report.fault) == (6, "")


def test_a_log_from_before_the_chain_continues(tmp_path):
    path = tmp_path / "audit.jsonl"
    old = [json.dumps({"time": "2025-01-01T00:00:00Z", "event": "answered", "n": n}) for n in "ab"]
    path.write_text("".join(line + "\n" for line in old))
    log = AuditLog(path)
    log.write(event="answered")
    log.write(event="answered")
    report = check_chain(path)
    assert (report.n_lines, report.n_before_chain, report.fault) == (4, 2, "")
    path.write_text(path.read_text().replace('"a"', '"c"'))  # what is older is covered as a whole
    assert "chain begins at line 3, but lines before it were changed" in check_chain(path).fault


def test_a_log_whose_head_is_gone_says_that_it_cannot_know_its_end(log):
    head_path(log.path).unlink()
    report = check_chain(log.path)
    assert (report.fault, report.has_head_file) == ("", False)


def test_a_full_disk_is_an_error_that_leaves_the_chain_whole(log, monkeypatch):
    def fail(path, line):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("anamorph.federation.site.append_only.append_line", fail)
    with pytest.raises(StorageError, match="No space left"):
        log.write(event="answered")
    monkeypatch.undo()
    assert check_chain(log.path).n_lines == 5
    log.write(event="answered")
    assert check_chain(log.path).fault == ""


def _write_many(path):
    for _ in range(20):
        AuditLog(path).write(event="answered")


@pytest.mark.skipif(audit.fcntl is None, reason="Windows has no file locks of this kind")
def test_two_processes_write_one_chain(log):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(log.path,)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    report = check_chain(log.path)
    assert (report.n_lines, report.fault) == (45, "")
