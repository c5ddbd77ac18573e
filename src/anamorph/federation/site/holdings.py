"""What a site lends to all fits: its images, what they are called, and what it computes with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anamorph.arrays.devices import Machine
from anamorph.federation.site.policy import Policy
from anamorph.images.collection import ImageCollection
from anamorph.model.encoding import Encoded
from anamorph.model.generator import Generator
from anamorph.model.parameters import Parameters
from anamorph.model.predicting import Predictor
from anamorph.model.settings import Settings


@dataclass(frozen=True)
class Holdings:
    """What a site lends to all fits, and what it computes with.

    Attributes
    ----------
    images : ImageCollection
        All N images of the site.
    identities : N texts or numbers
        One for each image, unique over all sites. Starting latents are drawn from them.
    secret : bytes
        Starting latents are drawn with it, so that nobody else knows them. Empty: they are drawn
        as by a fit on one machine.
    columns : dict
        N values for each column by which analyses may group or weight images.
    policy : Policy
        What may be asked.
    machine : Machine
        Device, threads and memory, as in `ShapeAppearanceModel`.
    """

    images: ImageCollection
    identities: Sequence[int | str]
    secret: bytes
    columns: Mapping[str, Sequence[str]]
    policy: Policy
    machine: Machine

    def seed(self, seed: int) -> int:
        """Return the seed of the starting latents at this site."""
        return seed_of_site(seed, self.secret)

    def encoded(self, settings: Settings, parameters: Parameters) -> Encoded:
        """Return the most probable latents of the images under a model, and their poses if any."""
        return Predictor(Generator(settings, parameters), self.machine).encode(self.images)


def seed_of_site(seed: int, secret: bytes) -> int:
    """Return the seed of the starting latents at a site.

    Parameters
    ----------
    seed : int
        Of the fit.
    secret : bytes
        Of the site. Empty: the seed of the fit.
    """
    if not secret:
        return seed
    digest = hashlib.blake2b(seed.to_bytes(16, "little"), key=secret, digest_size=8)
    return int.from_bytes(digest.digest(), "little")
