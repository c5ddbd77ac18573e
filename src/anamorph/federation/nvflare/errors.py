"""What can go wrong with a consortium that whoever runs it can put right."""

from __future__ import annotations

from anamorph.federation.protocol.errors import FederationError


class ConsortiumError(FederationError):
    """A consortium, a kit or a running federation is not as it should be."""
