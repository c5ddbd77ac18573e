"""Random cases against the package: no traceback, no hang, nothing silently wrong.

python -m benchmarks.fuzz                    10,000 cases, over all kinds in turn
python -m benchmarks.fuzz 500 --seed 7       fewer, and others
python -m benchmarks.fuzz 1 --only arrays --seed 123   one case again, as a failure names it

A kind of cases is a function in a module ``benchmarks/fuzz_*.py`` with the decorator `case`. It
gets a random generator and an empty folder, tries something, and returns what became of it in a
word. It may end with one of the `ACCEPTED` errors, whose text must be one line. Everything else
that it raises, an `AssertionError` about a wrong result included, is a failure, and so is taking
longer than `LONGEST` seconds of the processor, or `PATIENCE` times as long by the clock: other
processes may use the machine.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import pkgutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import benchmarks
from anamorph.images.errors import ImageError, TableError
from anamorph.model.checks import ArgumentError
from anamorph.storage.errors import ModelFileError

Case = Callable[[np.random.Generator, Path], str]

ACCEPTED = (ImageError, TableError, ArgumentError, ModelFileError)
LONGEST = 60.0  # seconds of the processor; kernels may have to be compiled
PATIENCE = 20  # times that, by the clock
REFUSED = "refused"

#: All kinds of cases, by name.
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Add a kind of cases to the list, under the name of its function."""
    CASES[function.__name__] = function
    return function


@dataclass(frozen=True)
class Failure:
    """A case that did what no case may.

    Attributes
    ----------
    kind : str
    seed : int
    text : str
        The traceback.
    """

    kind: str
    seed: int
    text: str

    def __str__(self) -> str:
        again = f"python -m benchmarks.fuzz 1 --only {self.kind} --seed {self.seed}"
        return f"{self.text.rstrip()}\nAgain: {again}"


def load_cases() -> None:
    """Import every module that adds kinds of cases."""
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if module.name.startswith("fuzz_"):
            importlib.import_module(f"benchmarks.{module.name}")


def run(
    n_cases: int, seed: int = 0, only: str | None = None
) -> tuple[Counter[tuple[str, str]], list[Failure]]:
    """Run cases of all kinds in turn, until all are done or somebody interrupts them.

    Parameters
    ----------
    n_cases : int
    seed : int
        That of the first case, 0 by default; each case has the next.
    only : str, optional
        The only kind to run; by default all.

    Returns
    -------
    outcomes : Counter
        How often each kind of case ended how.
    failures : list of Failure
    """
    load_cases()
    names = sorted(CASES) if only is None else [only]
    outcomes: Counter[tuple[str, str]] = Counter()
    failures = []
    for n in range(n_cases):
        kind = names[(seed + n) % len(names)]
        try:
            outcome = try_case(kind, seed + n)
        except KeyboardInterrupt:  # what was found so far is told
            break
        if isinstance(outcome, Failure):
            failures.append(outcome)
            outcome = "FAILED"
        outcomes[kind, outcome] += 1
    return outcomes, failures


def try_case(kind: str, seed: int) -> str | Failure:
    """Return what became of a case, or its failure."""
    generator = np.random.default_rng(seed)
    try:
        with tempfile.TemporaryDirectory() as folder, limited_time(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries; wrong results are looked for
            try:
                return CASES[kind](generator, Path(folder))
            except ACCEPTED as error:
                text = str(error)
            assert "\n" not in text, f"an error of several lines: {text}"
            return REFUSED
    except Exception:
        return Failure(kind, seed, traceback.format_exc())


@contextmanager
def limited_time() -> Iterator[None]:
    """Raise a TimeoutError in a block that takes too long, where there are alarms (not Windows)."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"took longer than {LONGEST:g} seconds")

    clocks = {
        signal.SIGPROF: (signal.ITIMER_PROF, LONGEST),
        signal.SIGALRM: (signal.ITIMER_REAL, PATIENCE * LONGEST),
    }
    before = {number: signal.signal(number, stop) for number in clocks}
    for timer, seconds in clocks.values():
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer, _ in clocks.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> int:
    """Run what the command line asks for; return 1 if a case failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("n_cases", nargs="?", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default=None, help="one kind of cases")
    options = parser.parse_args()
    logging.getLogger("anamorph").addHandler(logging.NullHandler())  # what is odd is meant to be
    start = time.process_time()
    outcomes, failures = run(options.n_cases, options.seed, options.only)
    for (kind, outcome), count in sorted(outcomes.items()):
        print(f"{kind:24} {outcome:12} {count}")
    for failure in failures:
        print(f"\n{failure}")
    seconds = time.process_time() - start  # others may use the machine
    print(f"{outcomes.total()} cases, {len(failures)} failures, {seconds:.0f} s of the processor")
    return 1 if failures else 0


if __name__ == "__main__":
    from benchmarks import fuzz  # not this module, which is named __main__: cases know that one

    sys.exit(fuzz.main())
