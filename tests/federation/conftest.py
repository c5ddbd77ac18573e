"""Sites in one process, small enough that a whole fit takes a second."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from anamorph import ShapeAppearanceModel
from anamorph.federation import (
    Policy,
    Replies,
    SiteAgent,
    Terms,
    federated_fit,
    simulated_sites,
    split_images,
)
from anamorph.federation.protocol.identity import new_identities
from anamorph.federation.protocol.wire import unpack
from anamorph.images.collection import open_images
from anamorph.likelihoods import LIKELIHOODS
from tests import simulated

OPTIONS = {
    "n_components": 2,
    "n_iter": 3,
    "random_state": 0,
    "n_threads": 1,
    "shape_penalty": (0.01, 0.1, 1.0, 0.1, 0.1),
}
LENIENT = Policy(minimum_images=1)
OPEN = Policy(minimum_images=1, secure_sum=False)


def stack(n_images=13, seed=0):
    *_, images = simulated.random_problem("gaussian", n_images=n_images, seed=seed, missing=0.1)
    return images[:, 0]


def fixed_penalties(likelihood="gaussian"):
    """Return the default penalties of a federation: on one machine they follow the images."""
    defaults = LIKELIHOODS[likelihood].default_penalties
    return {f"{name}_penalty": weights for name, weights in defaults.items()}


def model(**changes):
    penalties = fixed_penalties(changes.get("likelihood", "gaussian"))
    return ShapeAppearanceModel(**{**OPTIONS, **penalties, **changes})


@dataclass
class Wire:
    """What went over the wire: names of sites, bytes sent to them, bytes answered by them."""

    lines: list = field(default_factory=list)

    def __call__(self, name, sent, answered):
        self.lines.append((name, sent, answered))

    def messages(self):
        for name, sent, answered in self.lines:
            yield name, unpack(sent), unpack(answered)


def sites(folder, policy=LENIENT, n_images=13, n_sites=3, watch=None, **options):
    images = open_images(stack(n_images), "gaussian")
    parts = split_images(n_images, n_sites)
    return simulated_sites(images, parts, folder, policy, n_threads=1, watch=watch, **options)


def one_agent(folder, policy=LENIENT, images=None, n_others=2, name="a", **options):
    """Return the agent of one site, and the identities of all."""
    names = [name, *(f"other{number}" for number in range(n_others))]
    identities = new_identities(names)
    collection = open_images(stack(7) if images is None else images, "gaussian")
    agent = SiteAgent(name, collection, policy, folder, identities[0], n_threads=1, **options)
    return agent, identities


class Unreliable:
    """A transport whose sites fail when they are told to.

    `plan` is called with the name of a site and the message for it. It returns None, or "lost"
    for a message that does not arrive, or "unheard" for an answer that does not, or a function
    that changes the answer.
    """

    def __init__(self, inner, plan):
        self.inner, self.plan, self.away = inner, plan, set()

    @property
    def names(self):
        return tuple(name for name in self.inner.names if name not in self.away)

    def call(self, messages, timeout):
        replies = Replies()
        for name, message in messages.items():
            fault = "lost" if name in self.away else self.plan(name, message)
            if fault != "lost":
                answer = self.inner.call({name: message}, timeout).answers[name]
            if fault in ("lost", "unheard"):
                replies.failures[name] = f"the answer is {fault}"
            else:
                replies.answers[name] = answer if fault is None else fault(answer)
        return replies


def fit(transport, *, terms=None, checkpoint=None, **changes):
    fitted = model(**changes)
    terms = terms or Terms(patience=0.0)
    result = federated_fit(fitted, transport, transport.names, terms, checkpoint=checkpoint)
    return fitted, result


@pytest.fixture(scope="session")
def pooled():
    """The fit on one machine that fits across sites are compared with."""
    return model().fit(stack())


def objective_error(result, expected):
    expected = np.array(expected.objective_)
    return float(np.abs(np.array(result.objective_) / expected - 1).max())
