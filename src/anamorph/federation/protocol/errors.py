"""What can go wrong between sites, by name: a refusal crosses the wire as its name and one line."""

from __future__ import annotations


class FederationError(RuntimeError):
    """Anything that stops a question between coordinator and sites."""


class PolicyError(FederationError):
    """A question that the policy of a site does not allow."""


class TooFewImagesError(PolicyError):
    """An answer that would be about fewer images than the policy of a site allows."""


class RosterError(PolicyError):
    """A question for other sites than it was answered for before, or for too few of them."""


class StaleStepError(FederationError):
    """A question whose step is not the next one of a site: one was lost, or it comes too late."""


class MessageError(FederationError):
    """A message that does not hold what it should: a name, a shape, a finite number."""


class SumOverflowError(FederationError):
    """A sum that is too large for the scale that was agreed on."""


class SignatureError(FederationError):
    """A key that is not signed by the site that it is said to be of."""


class StorageError(FederationError):
    """Latents or sums that a site could not write to its disk."""


class SiteFailure(FederationError):  # noqa: N818
    """A site that failed for a reason that only its own log tells."""


class AnswerError(FederationError):
    """A site that answered with wrong fields or shapes, or with numbers that are not finite."""


class SitesLostError(FederationError):
    """Sites that did not answer, or cannot go on from where the others are.

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
        SumOverflowError,
        SignatureError,
        StorageError,
        AnswerError,
        SiteFailure,
    )
}
