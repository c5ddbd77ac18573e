"""The chain of an audit log: every line holds the hash of the line before it.

A line that was changed, removed or inserted breaks the chain. A tail that was cut off does not, so
a small file beside the log, its head, holds the hash and the number of the last line. Whoever can
change both files can forge the whole chain, but not one whose head somebody has written down.

Logs from before there was a chain continue: the first line of the chain holds the hash of all lines
before it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The field that holds the hash of the line before.
PREVIOUS = "previous"


@dataclass(frozen=True)
class Head:
    """The end of a log, as far as it was written.

    Attributes
    ----------
    lines : int
        How many there are.
    bytes : int
        Their size.
    hash : str
        Hash of the last one.
    """

    lines: int
    bytes: int
    hash: str


@dataclass(frozen=True)
class ChainReport:
    """What the check of a log has found.

    Attributes
    ----------
    n_lines : int
        Complete lines in the log.
    n_before_chain : int
        Lines at its beginning that are older than the chain, of which only the whole is covered.
    head : str
        Hash of the last line, to be written down and compared; "" if the log is empty.
    fault : str
        What is broken first, in words; "" if nothing is.
    line : int or None
        Number of the first line that is broken, if one is.
    has_head_file : bool
        Whether the head was there: without it, nobody notices that the end was cut off.
    """

    n_lines: int
    n_before_chain: int
    head: str
    fault: str = ""
    line: int | None = None
    has_head_file: bool = True


def hash_of(data: bytes) -> str:
    """Return the hash of a line (without its end), or of all that is before the chain."""
    return hashlib.sha256(data).hexdigest()


def head_path(log: Path) -> Path:
    """Return where the head of a log is."""
    return log.with_suffix(".head")


def read_head(log: Path) -> Head | None:
    """Return the head of a log; None if there is none, or none that can be read."""
    try:
        facts = json.loads(head_path(log).read_text(encoding="utf-8"))
        return Head(int(facts["lines"]), int(facts["bytes"]), str(facts["hash"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def complete_part(data: bytes) -> bytes:
    """Return the complete lines of a file: not half a line that a crash left at its end."""
    return data[: data.rfind(b"\n") + 1]


def hash_to_follow(data: bytes, head: Head | None) -> str:
    """Return the hash that the next line of a log must hold.

    Parameters
    ----------
    data : bytes
        The complete lines of the log.
    head : Head or None
        None: there is none, as with logs from before there was a chain.

    Returns
    -------
    str
        That of the last line, also if a crash came between a line and its head. If the log does
        not have the lines that the head knows, it is the head's, so that the gap stays visible.
    """
    lines = data.split(b"\n")[:-1]
    if head is not None and head.lines:
        is_kept = head.lines <= len(lines) and hash_of(lines[head.lines - 1]) == head.hash
        if not is_kept:
            return head.hash
    if not lines or _previous(lines[-1]) is None:
        return hash_of(data)
    return hash_of(lines[-1])


def check_chain(log: Path, written_down: str | None = None) -> ChainReport:
    """Check the chain of an audit log.

    Parameters
    ----------
    log : Path
    written_down : str, optional
        A head that somebody has written down: the log must still hold that line.

    Returns
    -------
    ChainReport
    """
    data = complete_part(log.read_bytes())
    lines, head = data.split(b"\n")[:-1], read_head(log)
    hashes = [hash_of(line) for line in lines]
    previous = [_previous(line) for line in lines]
    begin = next((n for n, value in enumerate(previous) if value is not None), len(lines))
    fault, line = _first_break(lines, hashes, previous, begin) or _fault_of_head(hashes, head)
    if not fault and written_down is not None and written_down not in hashes:
        fault = f"no line has the hash {written_down} that was written down"
    last = hashes[-1] if hashes else ""
    has_head = head is not None
    return ChainReport(len(lines), begin, last, fault, line, has_head)


def _first_break(
    lines: list[bytes], hashes: list[str], previous: list[str | None], begin: int
) -> tuple[str, int | None] | None:
    """Return the first break within a log in words, and the number of the line; None: none."""
    if begin < len(lines):
        before = b"".join(line + b"\n" for line in lines[:begin])
        if previous[begin] != hash_of(before):
            what = (
                "lines before it were changed or removed" if begin else "lines before it are gone"
            )
            return f"the chain begins at line {begin + 1}, but {what}", begin + 1
    for n in range(begin + 1, len(lines)):
        if previous[n] is None:
            return f"line {n + 1} is not part of the chain", n + 1
        if previous[n] != hashes[n - 1]:
            return (
                f"line {n} is not the one that line {n + 1} was written after: it was changed, or "
                "lines were removed or inserted there",
                n,
            )
    return None


def _fault_of_head(hashes: list[str], head: Head | None) -> tuple[str, int | None]:
    """Return what the head of a log shows to be missing or changed at its end."""
    if head is None or not head.lines:
        return "", None
    if head.lines > len(hashes):
        return f"the log ends after line {len(hashes)}, but {head.lines} were written", len(hashes)
    if hashes[head.lines - 1] != head.hash:
        return f"line {head.lines} is not the one that was written", head.lines
    return "", None


def _previous(line: bytes) -> str | None:
    """Return the hash that a line holds; None if it holds none."""
    try:
        facts: Any = json.loads(line)
    except ValueError:
        return None
    value = facts.get(PREVIOUS) if isinstance(facts, dict) else None
    return value if isinstance(value, str) else None
