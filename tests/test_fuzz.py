"""Random cases of every kind, a few hundred in all: `python -m benchmarks.fuzz` runs 10,000."""

import signal
import time

import pytest

from benchmarks import fuzz

fuzz.load_cases()

QUICK = ("arrays", "channels", "damaged_files", "files")
N_QUICK, N_SLOW, N_LONG = 60, 25, 4


def no_failures(kind, n_cases, seed):
    outcomes, failures = fuzz.run(n_cases, seed, only=kind)
    assert not failures, "\n".join(map(str, failures))
    assert sum(outcomes.values()) == n_cases
    return {outcome for _, outcome in outcomes}


@pytest.mark.parametrize("kind", QUICK)
def test_inputs_do_no_harm(kind):
    outcomes = no_failures(kind, N_QUICK, seed=20)
    assert fuzz.REFUSED in outcomes
    assert len(outcomes) > 1  # some are accepted, and compared with what they should be


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(set(fuzz.CASES) - {*QUICK, "combinations"}))
def test_models_and_commands_do_no_harm(kind):
    outcomes = no_failures(kind, N_SLOW, seed=20)
    # Checksums tell every damage; of other cases some are accepted.
    assert outcomes == {"refused"} if kind.startswith("damaged") else len(outcomes) > 1


@pytest.mark.slow
def test_combined_settings_do_no_harm():
    assert "fitted" in no_failures("combinations", N_LONG, seed=20)


@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="there are no alarms on Windows")
def test_a_traceback_a_wrong_result_and_a_hang_are_failures(monkeypatch):
    def wrong(generator, folder):
        raise AssertionError("other values")

    def broken(generator, folder):
        return {}["nothing"]

    def endless(generator, folder):
        while True:
            pass

    def waiting(generator, folder):
        time.sleep(60)

    def several_lines(generator, folder):
        raise fuzz.ImageError("one\ntwo")

    monkeypatch.setattr(fuzz, "LONGEST", 0.2)
    monkeypatch.setattr(fuzz, "PATIENCE", 2)
    for function in (wrong, broken, endless, waiting, several_lines):
        monkeypatch.setitem(fuzz.CASES, function.__name__, function)
        _, failures = fuzz.run(2, 5, only=function.__name__)
        assert [failure.seed for failure in failures] == [5, 6]
        assert f"--only {function.__name__} --seed 5" in str(failures[0])


@pytest.mark.parametrize(
    "seed",
    [
        3009992,  # all latents are 0
        3003381,  # all latents are 0 but for rounding
        3002105,  # no image can be predicted from the others
    ],
)
def test_what_long_runs_found_stays_mended(seed):
    fuzz.load_cases()
    outcome = fuzz.try_case("extreme_settings", seed)
    assert outcome == "fitted", outcome
