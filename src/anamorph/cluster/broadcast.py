"""Parameters on their way to all workers: an array is sent once, however often published."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from distributed import Client, Future

from anamorph.model.parameters import Parameters

_ARRAYS = [field.name for field in fields(Parameters) if field.name != "warp_version"]


class Broadcast:
    """Arrays of parameters that were sent to the cluster.

    Parameters
    ----------
    client : Client
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        # By identity: parameters that differ in one array share all others. Arrays are held on
        # to, so that no new one gets the identity of one that is gone.
        self._sent: dict[int, tuple[Any, Future]] = {}

    def send(self, *wanted: Parameters | None) -> list[dict[str, Any] | None]:
        """Return parameters as `received` takes them, their arrays as futures.

        Arrays that are not there yet are sent; those that are not wanted any more are dropped.
        """
        named = [
            (name, array)
            for parameters in wanted
            if parameters is not None
            for name, array in _arrays(parameters).items()
        ]
        new = {id(array): array for _, array in named if id(array) not in self._sent}
        if new:
            # To one worker each, and on to all others by the tasks that need them. Dask's own
            # broadcast tries for ever to reach a worker that dies meanwhile, and no other
            # broadcast of the cluster begins before it ends.
            futures = self._client.scatter(list(new.values()), hash=False)
            self._sent |= {
                key: (array, future)
                for (key, array), future in zip(new.items(), futures, strict=True)
            }
        used = {id(array) for _, array in named}
        self._sent = {key: sent for key, sent in self._sent.items() if key in used}
        return [None if one is None else self._described(one) for one in wanted]

    def forget(self) -> None:
        """Take note that what was sent is lost, so that it is sent again when it is wanted."""
        self._sent = {}

    def _described(self, parameters: Parameters) -> dict[str, Any]:
        futures = {name: self._sent[id(array)][1] for name, array in _arrays(parameters).items()}
        return {**futures, "warp_version": parameters.warp_version}


def received(description: dict[str, Any] | None) -> Parameters | None:
    """Return parameters on a worker, where Dask has put arrays in place of their futures."""
    return None if description is None else Parameters(**description)


def _arrays(parameters: Parameters) -> dict[str, Any]:
    return {name: getattr(parameters, name) for name in _ARRAYS}
