"""One fit across hospitals: sites keep their images and latents, and send sums over them.

protocol/     what travels: messages as bytes, questions, answers, named errors, identities
masking/      the secure sum, which hides the sums of one site behind those of all sites
site/         the agent of a hospital: it answers under a policy, with a ledger and an audit log
coordinator/  asks all sites, adds up their answers, runs fits and analyses
nvflare/      the engine between computers: kits, certificates, jobs
simulate.py   sites that all run in this process

A sub-package imports only from those listed before it; `site` and `coordinator` do not import each
other. Only `nvflare/` imports NVFLARE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anamorph.exports import lazy_exports

if TYPE_CHECKING:
    from anamorph.federation.coordinator.fit import FederatedResult as FederatedResult
    from anamorph.federation.coordinator.fit import Terms as Terms
    from anamorph.federation.coordinator.fit import federated_fit as federated_fit
    from anamorph.federation.coordinator.release_check import MembershipAttack as MembershipAttack
    from anamorph.federation.coordinator.release_check import ReleaseCheck as ReleaseCheck
    from anamorph.federation.coordinator.release_check import release_check as release_check
    from anamorph.federation.coordinator.statistics import GroupStatistics as GroupStatistics
    from anamorph.federation.coordinator.statistics import (
        federated_statistics as federated_statistics,
    )
    from anamorph.federation.coordinator.statistics import privacy_terms as privacy_terms
    from anamorph.federation.coordinator.statistics import write_statistics as write_statistics
    from anamorph.federation.protocol.errors import AnswerError as AnswerError
    from anamorph.federation.protocol.errors import ConsortiumError as ConsortiumError
    from anamorph.federation.protocol.errors import FederationError as FederationError
    from anamorph.federation.protocol.errors import MessageError as MessageError
    from anamorph.federation.protocol.errors import PolicyError as PolicyError
    from anamorph.federation.protocol.errors import RosterError as RosterError
    from anamorph.federation.protocol.errors import SignatureError as SignatureError
    from anamorph.federation.protocol.errors import SiteFailure as SiteFailure
    from anamorph.federation.protocol.errors import SitesLostError as SitesLostError
    from anamorph.federation.protocol.errors import StaleStepError as StaleStepError
    from anamorph.federation.protocol.errors import StorageError as StorageError
    from anamorph.federation.protocol.errors import TooFewImagesError as TooFewImagesError
    from anamorph.federation.protocol.errors import VerificationError as VerificationError
    from anamorph.federation.protocol.identity import Identity as Identity
    from anamorph.federation.protocol.privacy import PrivacyTerms as PrivacyTerms
    from anamorph.federation.protocol.transport import Replies as Replies
    from anamorph.federation.protocol.transport import Transport as Transport
    from anamorph.federation.simulate import LocalTransport as LocalTransport
    from anamorph.federation.simulate import simulated_sites as simulated_sites
    from anamorph.federation.simulate import split_images as split_images
    from anamorph.federation.site.agent import SiteAgent as SiteAgent
    from anamorph.federation.site.policy import Policy as Policy

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "coordinator.fit": ["FederatedResult", "Terms", "federated_fit"],
        "coordinator.release_check": ["MembershipAttack", "ReleaseCheck", "release_check"],
        "coordinator.statistics": [
            "GroupStatistics",
            "federated_statistics",
            "privacy_terms",
            "write_statistics",
        ],
        "protocol.errors": [
            "AnswerError",
            "ConsortiumError",
            "FederationError",
            "MessageError",
            "PolicyError",
            "RosterError",
            "SignatureError",
            "SiteFailure",
            "SitesLostError",
            "StaleStepError",
            "StorageError",
            "VerificationError",
            "TooFewImagesError",
        ],
        "protocol.identity": ["Identity"],
        "protocol.privacy": ["PrivacyTerms"],
        "protocol.transport": ["Replies", "Transport"],
        "simulate": ["LocalTransport", "simulated_sites", "split_images"],
        "site.agent": ["SiteAgent"],
        "site.policy": ["Policy"],
    },
)
