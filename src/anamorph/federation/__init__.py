"""One fit across hospitals: sites keep their images and latents, and send sums over them.

protocol/     what travels: messages as bytes, questions, answers, named errors, identities
masking/      the secure sum, which hides the sums of one site behind those of all sites
site/         the agent of a hospital: it answers under a policy, with a ledger and an audit log
coordinator/  asks all sites, adds up their answers, runs fits and analyses
nvflare/      the engine between computers: kits, certificates, jobs
simulate.py   sites that all run in this process

A sub-package imports only from those listed before it; `site` and `coordinator` do not import each
other. All names but those of errors are imported when they are first used; only `nvflare/` imports
NVFLARE.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anamorph.federation.protocol.errors import (
    AnswerError,
    ConsortiumError,
    FederationError,
    MessageError,
    PolicyError,
    RosterError,
    SignatureError,
    SiteFailure,
    SitesLostError,
    StaleStepError,
    StorageError,
    SumOverflowError,
    TooFewImagesError,
)

if TYPE_CHECKING:
    from anamorph.federation.coordinator.fit import FederatedResult, Terms, federated_fit
    from anamorph.federation.coordinator.statistics import (
        GroupStatistics,
        federated_statistics,
        write_statistics,
    )
    from anamorph.federation.protocol.identity import Identity
    from anamorph.federation.protocol.transport import Replies, Transport
    from anamorph.federation.simulate import LocalTransport, simulated_sites, split_images
    from anamorph.federation.site.agent import SiteAgent
    from anamorph.federation.site.policy import Policy

# Modules of the names that are imported when they are first used.
_HOMES = {
    "coordinator.fit": ("FederatedResult", "Terms", "federated_fit"),
    "coordinator.statistics": ("GroupStatistics", "federated_statistics", "write_statistics"),
    "protocol.identity": ("Identity",),
    "protocol.transport": ("Replies", "Transport"),
    "simulate": ("LocalTransport", "simulated_sites", "split_images"),
    "site.agent": ("SiteAgent",),
    "site.policy": ("Policy",),
}

__all__ = [
    "AnswerError",
    "ConsortiumError",
    "FederatedResult",
    "FederationError",
    "GroupStatistics",
    "Identity",
    "LocalTransport",
    "MessageError",
    "Policy",
    "PolicyError",
    "Replies",
    "RosterError",
    "SignatureError",
    "SiteAgent",
    "SiteFailure",
    "SitesLostError",
    "StaleStepError",
    "StorageError",
    "SumOverflowError",
    "Terms",
    "TooFewImagesError",
    "Transport",
    "federated_fit",
    "federated_statistics",
    "simulated_sites",
    "split_images",
    "write_statistics",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
