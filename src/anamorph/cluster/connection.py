"""A connection to a Dask scheduler whose workers run the same software."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from distributed import Client

_SECONDS_TO_CONNECT = 10.0
# Tasks and answers are pickled between processes: what defines them must be the same.
_SAME_PACKAGES = ("anamorph", "distributed", "numpy")


class ClusterError(RuntimeError):
    """A cluster on which a fit cannot begin, or cannot continue."""


def connect(address: str, seconds: float | None = None) -> Client:
    """Return a client of the scheduler at an address, e.g. "tcp://node17:8786".

    Parameters
    ----------
    address : str
    seconds : float, optional
        To wait for an answer; 10 by default.

    Raises
    ------
    ClusterError
        If no scheduler answers in that time.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `check_versions` says what matters, in one line
            timeout = _SECONDS_TO_CONNECT if seconds is None else seconds
            return Client(address, timeout=timeout, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ClusterError(
            f"no Dask scheduler answers at {address} ({reason}): start one with 'dask scheduler', "
            "or check the address that it printed"
        ) from None


def check_versions(client: Client) -> None:
    """Raise a ClusterError unless workers and this process run the same versions."""
    found: Mapping[str, Any] = client.get_versions(packages=["anamorph"])
    ours = _versions(found["client"])
    for name, description in found["workers"].items():
        for package, theirs in _versions(description).items():
            if theirs is None:
                raise ClusterError(
                    f"worker {name} has no {package}: install {package} {ours[package]} there"
                )
            if theirs != ours[package]:
                raise ClusterError(
                    f"worker {name} has {package} {theirs}, and this machine {ours[package]}: "
                    "install the same version on both"
                )


def _versions(description: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the versions that matter: Python's without its last number, and of packages."""
    python = ".".join(str(description["host"]["python"]).split(".")[:2])
    packages = description["packages"]
    return {"python": python, **{name: packages.get(name) for name in _SAME_PACKAGES}}
