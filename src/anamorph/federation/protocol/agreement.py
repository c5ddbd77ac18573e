"""What sites agree on before a fit: how many images each has, and the range of their intensities.

Counts are signed, public and fixed for a fit: a site cannot claim more images later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anamorph.federation.protocol.binding import statement
from anamorph.federation.protocol.errors import MessageError
from anamorph.federation.protocol.identity import Identity
from anamorph.federation.protocol.wire import Message

# Intensities of sites may differ by a factor of 2^this: beyond it they are in other units.
_MOST_BITS_APART = 10


@dataclass(frozen=True)
class Agreement:
    """The images of all sites of a fit, in numbers.

    Attributes
    ----------
    counts : dict
        Number of images, by site.
    exponent : int
        Intensities at all sites are below 2^exponent in magnitude.
    """

    counts: Mapping[str, int]
    exponent: int

    @classmethod
    def of(cls, holdings: Mapping[str, Message]) -> Agreement:
        """Return the agreement of sites that hold so many images with such intensities."""
        exponents = {name: held["exponent"] for name, held in holdings.items()}
        lowest, highest = (choose(exponents, key=lambda n: exponents[n]) for choose in (min, max))
        if exponents[highest] - exponents[lowest] > _MOST_BITS_APART:
            raise MessageError(
                f"intensities of {highest} reach 2^{exponents[highest]}, those of {lowest} "
                f"2^{exponents[lowest]}: bring the images of all sites to one scale"
            )
        counts = {name: held["n_images"] for name, held in sorted(holdings.items())}
        return cls(counts, exponents[highest])

    @property
    def largest(self) -> float:
        """No intensity exceeds this."""
        return 2.0**self.exponent

    def n_images(self, roster: Iterable[str]) -> int:
        """Return the number of images at some sites together."""
        return sum(self.counts[name] for name in roster)


def signed_holdings(identity: Identity, n_images: int, exponent: int) -> Message:
    """Return the number of images of a site and the range of their intensities, signed."""
    claim = statement("holdings", identity.name, n_images, exponent)
    return {"n_images": n_images, "exponent": exponent, "signature": identity.sign(claim)}


def verified_agreement(identity: Identity, holdings: Mapping[str, Message]) -> Agreement:
    """Return the agreement that all sites have signed, or raise a SignatureError."""
    for name, held in holdings.items():
        claim = statement("holdings", name, held["n_images"], held["exponent"])
        identity.verify(name, claim, held["signature"])
    return Agreement.of(holdings)
