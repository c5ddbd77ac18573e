"""States of a fit at one site, with its latents, on its own disk: one file for each iteration."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from anamorph.arrays.column_sums import is_large
from anamorph.arrays.typing import Float64Array
from anamorph.federation.protocol.errors import StorageError
from anamorph.fitting.state import State
from anamorph.model.parameters import Parameters
from anamorph.model.settings import Settings
from anamorph.storage.checkpoint import state_from, state_tensors
from anamorph.storage.errors import ModelFileError
from anamorph.storage.modelfile import parameter_arrays, parameters_from, settings_from
from anamorph.storage.tensors import read_tensors, write_tensors

_KIND, _VERSION = "site state", 2  # 1 where images have no poses
_MODEL = "model.safetensors"
_NAME = re.compile(r"state-(\d{6})\.safetensors")
# The coordinator may not have written the last one when it is killed.
_N_KEPT = 2


@dataclass(frozen=True)
class KeptState:
    """Where a fit stood at one site after an iteration.

    Attributes
    ----------
    state : State
    latents : (N, K) or None
        Those from before the turn of the state. None: this site was away, and has to encode its
        images.
    transcript : str
        Digest of all that led there.
    norms : dict
        Usual norms of derivatives, by question (`Bounds.norms`).
    roster : tuple of str
        The sites of that iteration.
    settings : Settings
    confirmed_for : tuple of str
        The roster whose sites have confirmed the state, if it was taken over from them.
    roster_since : int
        Number of iterations before those with this roster.
    poses : (N, P) or None
        None where images have no poses, or `latents` is None.
    """

    state: State
    latents: Float64Array | None
    transcript: str
    norms: dict[str, list[float]]
    roster: tuple[str, ...]
    settings: Settings
    confirmed_for: tuple[str, ...] = ()
    roster_since: int = 0
    poses: Float64Array | None = None

    @property
    def is_own(self) -> bool:
        """Whether this site has computed it, rather than taken it over."""
        return self.latents is not None


class StateStore:
    """The last states of a fit.

    Parameters
    ----------
    folder : Path
        Created if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for unfinished in folder.glob(".state-*"):  # of a process that was killed
            unfinished.unlink(missing_ok=True)

    def save(self, kept: KeptState) -> None:
        """Write the state after an iteration, and drop the oldest."""
        arrays, facts = state_tensors(kept.state)
        if kept.latents is not None:
            arrays["latents"] = kept.latents
        if kept.poses is not None:
            arrays["poses"] = kept.poses
        facts |= {
            "n_images": kept.state.latents.n_images,
            "transcript": kept.transcript,
            "norms": kept.norms,
            "roster": list(kept.roster),
            "settings": asdict(kept.settings),
            "confirmed_for": list(kept.confirmed_for),
            "roster_since": kept.roster_since,
        }
        iteration = len(kept.state.objective)
        try:
            write_tensors(self._path(iteration), _KIND, _version(kept.settings), arrays, facts)
        except OSError as error:
            raise StorageError(
                "the state of the fit cannot be written to the disk of this site "
                f"({error.strerror or 'no space'}): make space"
            ) from None
        for old in self.iterations():
            if old <= iteration - _N_KEPT or old > iteration:
                self._path(old).unlink(missing_ok=True)

    def load(self, iteration: int, n_images: int) -> KeptState | None:
        """Return the state after an iteration; None if there is none, or one of other images.

        Parameters
        ----------
        iteration : int
        n_images : int
            At this site.
        """
        path = self._path(iteration)
        if not path.exists():
            return None
        arrays, facts = _read(path)
        latents, poses = arrays.pop("latents", None), arrays.pop("poses", None)
        if latents is not None and len(latents) != n_images:
            return None
        return KeptState(
            state_from(arrays, facts, facts["n_images"]),
            latents,
            facts["transcript"],
            facts["norms"],
            tuple(facts["roster"]),
            settings_from(facts["settings"]),
            tuple(facts["confirmed_for"]),
            facts.get("roster_since", 0),  # states of earlier versions do not say
            poses,
        )

    def save_model(self, settings: Settings, parameters: Parameters) -> None:
        """Write the model at the end of the fit."""
        arrays, facts = parameter_arrays(parameters), {"settings": asdict(settings)}
        write_tensors(self.folder / _MODEL, _KIND, _version(settings), arrays, facts)

    def models(self) -> Iterator[tuple[Settings, Parameters]]:
        """Yield the model at the end of the fit, then those after the last iterations."""
        paths = [self.folder / _MODEL, *(self._path(n) for n in reversed(self.iterations()))]
        for path in paths:
            if path.exists():
                arrays, facts = _read(path)
                yield settings_from(facts["settings"]), parameters_from(arrays)

    def iterations(self) -> list[int]:
        """Return the iterations whose states are here, in order."""
        found = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in found if match)

    def _path(self, iteration: int) -> Path:
        return self.folder / f"state-{iteration:06d}.safetensors"


def _version(settings: Settings) -> int:
    return _VERSION if settings.has_poses else 1


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    try:
        return read_tensors(path, _KIND, _VERSION, is_large)
    except ModelFileError as error:
        raise StorageError(str(error)) from None
