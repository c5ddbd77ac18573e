"""Errors of a federation: a refusal crosses the wire as the name of its class and one line."""

from __future__ import annotations


class FederationError(RuntimeError):
    """Base class of everything that stops a question between coordinator and sites."""


class PolicyError(FederationError):
    """The policy of a site does not allow a question."""


class TooFewImagesError(PolicyError):
    """An answer would cover fewer images than the policy of a site requires."""


class RosterError(PolicyError):
    """A question has too few sites, or other sites than when it was answered before."""


class StaleStepError(FederationError):
    """The step of a question is not the next one of a site: it is too old, or one was lost."""


class MessageError(FederationError):
    """A message has a wrong name, type or shape, or a number that is not finite."""


class VerificationError(FederationError):
    """A total is not the sum of the answers, or was not shown to all sites: the fit stops."""


class SignatureError(FederationError):
    """A key is not signed by the site that it claims to come from."""


class CertificateError(SignatureError):
    """A certificate is not accepted here, is of another key, or is expired or revoked."""


class DuplicateSiteError(SignatureError):
    """A site seems to run twice: its record of runs is not a continuation of the one seen here."""


class StorageError(FederationError):
    """A site could not write latents, sums or records to its disk."""


class SiteFailure(FederationError):  # noqa: N818
    """A site failed for a reason that only its own log contains."""


class AnswerError(FederationError):
    """A site answered with wrong fields or shapes, or with numbers that are not finite."""


class ConsortiumError(FederationError):
    """A consortium file, a kit or a running consortium has a fault that its operator can fix."""


class SitesLostError(FederationError):
    """Some sites did not answer, or cannot continue from the step of the others.

    Attributes
    ----------
    reasons : dict
        What went wrong, by name of the site.
    """

    def __init__(self, reasons: dict[str, str]) -> None:
        self.reasons = reasons
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in sorted(reasons.items())))


#: Errors that a site may answer with, by name.
NAMED = {
    error.__name__: error
    for error in (
        PolicyError,
        TooFewImagesError,
        RosterError,
        StaleStepError,
        MessageError,
        VerificationError,
        SignatureError,
        CertificateError,
        DuplicateSiteError,
        StorageError,
        AnswerError,
        SiteFailure,
    )
}
