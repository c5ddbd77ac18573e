"""Sites in one process: the same code as between hospitals, without a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from anamorph.federation.masking.identity import new_identities
from anamorph.federation.protocol.transport import LocalTransport
from anamorph.federation.site.agent import SiteAgent
from anamorph.federation.site.policy import Policy
from anamorph.images.collection import ImageCollection


def split_images(n_images: int, n_sites: int) -> list[range]:
    """Return which images each site gets: all of them, as evenly as can be, in turn."""
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
) -> LocalTransport:
    """Return a way to reach sites that hold parts of a collection.

    Images keep the identities that they have in the collection, so that a fit starts as a fit to
    the whole collection does.

    Parameters
    ----------
    images : ImageCollection
    parts : list of lists of int
        Which images each site holds.
    folder : Path
        Where each site has a folder of its own.
    policy : Policy, optional
        Of all sites.
    columns : dict, optional
        What is known of the images (N values by name), for statistics by group.
    memory_budget, n_threads : int, optional
    device : {"cpu", "cuda", "auto"}
        Of each site.
    watch : callable, optional
        Called with the name of a site, the bytes it was sent and those it answered with.
    """
    names = [f"site{number}" for number in range(1, len(parts) + 1)]
    agents = []
    for identity, numbers in zip(new_identities(names), parts, strict=True):
        some = images.subset(list(numbers))
        agents.append(
            SiteAgent(
                identity.name,
                some,
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
            )
        )
    return LocalTransport(agents, watch)
