"""Parameters on all workers: an array is sent once, however often it is published."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from typing import Any

from distributed import Client, Future

from anamorph.cluster.crew import SECONDS_BETWEEN_LOOKS, LostError
from anamorph.parameters import Parameters

_ARRAYS = [field.name for field in fields(Parameters) if field.name != "warp_version"]


class Broadcast:
    """Arrays of parameters that were sent to all workers.

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
            futures = self._scatter(list(new.values()))
            self._sent |= {
                key: (array, future)
                for (key, array), future in zip(new.items(), futures, strict=True)
            }
        used = {id(array) for _, array in named}
        self._sent = {key: sent for key, sent in self._sent.items() if key in used}
        return [None if one is None else self._described(one) for one in wanted]

    def _scatter(self, arrays: list[Any]) -> list[Future]:
        """Send arrays to all workers; Dask would wait for ever for one that dies meanwhile."""
        workers = set(self._client.nthreads())
        sending = asyncio.run_coroutine_threadsafe(
            self._client.scatter(arrays, broadcast=True, hash=False, asynchronous=True),
            self._client.loop.asyncio_loop,
        )
        while True:
            try:
                futures: list[Future] = sending.result(timeout=SECONDS_BETWEEN_LOOKS)
                return futures
            except TimeoutError:
                if sending.done():  # it is the sending that raised it
                    raise
                if not workers <= set(self._client.nthreads()):
                    sending.cancel()
                    raise LostError from None

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
