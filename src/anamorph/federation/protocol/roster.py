"""The roster: the names of the sites whose answers are added up."""

from __future__ import annotations

from anamorph.federation.protocol.errors import RosterError

#: Masks need two other sites to hide behind. With one, a total less a site's own sum is the
#: other site's sum.
LEAST_SITES = 3


def check_enough_sites(n_sites: int) -> None:
    """Raise a RosterError if a masked sum over so many sites would hide none of them."""
    if n_sites < LEAST_SITES:
        raise RosterError(f"a masked sum needs at least {LEAST_SITES} sites, got {n_sites}")
