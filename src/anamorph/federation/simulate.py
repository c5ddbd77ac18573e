"""Sites that all run in this process: the code that hospitals run, without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from anamorph.federation.protocol.identity import new_identities
from anamorph.federation.protocol.transport import Replies
from anamorph.federation.protocol.wire import Message, pack, unpack
from anamorph.federation.site.agent import SiteAgent
from anamorph.federation.site.policy import Policy
from anamorph.images.collection import ImageCollection


class LocalTransport:
    """A `Transport` to site agents in this process, by the very bytes that would leave a site.

    Parameters
    ----------
    agents : list of SiteAgent
        One for each site.
    watch : callable, optional
        Called after every answer with the name of the site, the bytes that it received and the
        bytes that it answered. By default nothing is called.
    """

    def __init__(
        self,
        agents: Sequence[SiteAgent],
        watch: Callable[[str, bytes, bytes], object] | None = None,
    ) -> None:
        self._agents = {agent.name: agent for agent in agents}
        self._watch = watch

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all sites."""
        return tuple(self._agents)

    def call(self, messages: Mapping[str, Message], timeout: float | None) -> Replies:
        """Ask the agents one after another, because their threads share the processors.

        Parameters
        ----------
        messages : dict
            Message for each site, by name.
        timeout : float or None
            Ignored.

        Returns
        -------
        Replies
        """
        replies = Replies()
        for name, message in messages.items():
            if name in self._agents:
                received = pack(message)
                answered = pack(self._agents[name].handle(unpack(received)))
                if self._watch is not None:
                    self._watch(name, received, answered)
                replies.answers[name] = unpack(answered)
            else:
                replies.failures[name] = "there is no such site"
        return replies


def split_images(n_images: int, n_sites: int) -> list[range]:
    """Deal images out to sites in turn.

    Parameters
    ----------
    n_images, n_sites : int

    Returns
    -------
    list of range
        Numbers of the images of each site.
    """
    return [range(first, n_images, n_sites) for first in range(n_sites)]


def simulated_sites(
    images: ImageCollection,
    parts: Sequence[Sequence[int]],
    folder: Path,
    policy: Policy | None = None,
    *,
    columns: Mapping[str, Sequence[str]] | None = None,
    memory_budget: int | None = None,
    n_threads: int | None = None,
    device: str = "cpu",
    watch: Callable[[str, bytes, bytes], object] | None = None,
    secret: bytes | None = None,
) -> LocalTransport:
    """Return a transport to sites in this process that hold parts of a collection.

    Images keep their identities in the collection, so a fit starts from the same latents as a fit
    to the whole collection.

    Parameters
    ----------
    images : ImageCollection
        N images.
    parts : list of lists of int
        Numbers of the images of each site, as from `split_images`.
    folder : Path
        Each site has a folder of its own in it: site1, site2 and so on.
    policy : Policy, optional
        Policy of all sites. By default `Policy()`.
    columns : dict, optional
        N values for each column by which analyses may group or weight images. By default none.
    memory_budget : int, optional
        Bytes for a batch of images, at each site. By default as in `ShapeAppearanceModel`.
    n_threads : int, optional
        Threads of each site. By default all processors.
    device : {"cpu", "cuda", "auto"}, default "cpu"
        Device of each site.
    watch : callable, optional
        Called after every answer with the name of the site, the bytes that it received and the
        bytes that it answered. By default nothing is called.
    secret : bytes, optional
        Starting latents are drawn with it, as by real sites. By default they are those of a fit
        on one machine, to compare with.

    Returns
    -------
    LocalTransport
    """
    names = [f"site{number}" for number in range(1, len(parts) + 1)]
    agents = [
        SiteAgent(
            identity.name,
            images.subset(list(numbers)),
            policy or Policy(),
            folder / identity.name,
            identity,
            identities=[images.identities[n] for n in numbers],
            columns={
                name: [values[n] for n in numbers] for name, values in (columns or {}).items()
            },
            memory_budget=memory_budget,
            n_threads=n_threads,
            device=device,
            secret=b"" if secret is None else secret,
        )
        for identity, numbers in zip(new_identities(names), parts, strict=True)
    ]
    return LocalTransport(agents, watch)
