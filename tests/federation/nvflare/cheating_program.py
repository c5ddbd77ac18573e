"""A coordinator's program that cheats: chosen parameters, by all ways that are left.

It takes the place of the honest one in the coordinator's own kit, and runs in a real server. The
sites are unmodified processes. Sums under parameters of one's choice are moments of the images; 16
fits whose starting latents are known make a system of equations for them.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
from nvflare.collab import collab

from anamorph import ShapeAppearanceModel
from anamorph.federation import FederationError, federated_statistics
from anamorph.federation.coordinator.fit import Terms, federated_fit
from anamorph.federation.coordinator.round import Round
from anamorph.federation.masking.field import PRIME
from anamorph.federation.nvflare.kit import open_kit
from anamorph.federation.nvflare.request import events_path
from anamorph.federation.nvflare.transport import CollabTransport
from anamorph.federation.protocol.transport import Replies
from anamorph.federation.site.append_only import JsonLines

FIRST_SEED, FORGED_SEED, CRAFTED_SEED = 100, 101, 102
SEEDS = range(103, 119)


class CheatingProgram:
    """Tries every attack in one job, and reports how each of them ended."""

    @collab.main
    def run(self) -> None:
        """Run all attacks."""
        kit = open_kit(Path(collab.workspace.get_root_dir()), as_site=False)
        events = JsonLines(events_path(kit), "the file of events")
        transport = CollabTransport()
        transport.introduce_sites({})
        events.append(kind="began", sites=list(transport.names))
        ended = {}
        for attack in (
            send_parameters,
            ask_for_as_many_components_as_images,
            guess_starting_latents,
            change_the_seed_of_a_fit,
            analyse_a_crafted_model,
            forge_the_mean,
            craft_the_state,
            try_many_seeds,
        ):
            try:
                ended[attack.__name__] = attack(transport)
            except FederationError as error:
                ended[attack.__name__] = f"{type(error).__name__}: {error}"
        events.append(kind="done", ended=ended)


class Spy:
    """A transport that keeps what is sent, and may change it."""

    def __init__(self, inner, change=lambda message: message):
        self.inner, self.change, self.sent = inner, change, []

    @property
    def names(self):
        return self.inner.names

    def call(self, messages, timeout) -> Replies:
        changed = {name: self.change(dict(message)) for name, message in messages.items()}
        self.sent += changed.values()
        return self.inner.call(changed, timeout)

    def last(self, task):
        return [message for message in self.sent if message["do"] == task][-1]


def fit(transport, seed, n_components=2, n_iter=1):
    model = ShapeAppearanceModel(n_components, n_iter=n_iter, random_state=seed, n_threads=1)
    federated_fit(model, transport, transport.names, Terms(patience=0.0))
    return model


def to_all(transport, message):
    return transport.call(dict.fromkeys(transport.names, message), 60.0).answers


def send_parameters(transport):
    answers = to_all(
        transport, {"do": "publish", "array": "mean", "start": 0, "values": np.zeros(120)}
    )
    return {name: f"{answer['error']}: {answer['text']}" for name, answer in answers.items()}


def ask_for_as_many_components_as_images(transport):
    fit(transport, FIRST_SEED, n_components=33)
    return "answered"


def guess_starting_latents(transport):
    """Return the sum of the starting latents, which is known to who can draw them."""
    totals, add_up = {}, Round.add_up

    def recorded(self, verdicts):
        totals.setdefault(self.binding.question, total := add_up(self, verdicts))
        return total

    Round.add_up = recorded
    try:
        fit(transport, FIRST_SEED)
    finally:
        Round.add_up = add_up
    return totals["start_latents"]["latent_sum"].tolist()


def change_the_seed_of_a_fit(transport):
    """Join the fit again under its name, with a seed that gives one more equation."""

    def change(message):
        return message | {"seed": message["seed"] + 1} if message["do"] == "join" else message

    fit(Spy(transport, change), FIRST_SEED, n_iter=2)
    return "answered"


def analyse_a_crafted_model(transport):
    crafted = ShapeAppearanceModel(2, n_iter=1, n_threads=1)
    crafted.fit(np.random.default_rng(0).random((8, 12, 10)))
    federated_statistics(crafted, transport, transport.names)
    return "answered"


def forge_the_mean(transport):
    """Add to the sum of the images what makes the mean of the sites the one that is wanted."""
    added, check = Round._added, Round._check

    def forged(self, index, replies, masked):
        total = added(self, index, replies, masked)
        if self.binding.question == "moments":
            total[-50:] = (total[-50:].astype(object) + 2**40) % PRIME
        return total

    Round._added, Round._check = forged, lambda *_: None
    try:
        fit(transport, FORGED_SEED)
    finally:
        Round._added, Round._check = added, check
    return "answered"


def craft_the_state(transport):
    """Send a site a state with zero bases but one, as if it had been away."""
    spy = Spy(transport)
    model = fit(spy, CRAFTED_SEED)
    name, *others = transport.names
    joined, restored = spy.last("join"), spy.last("restore")
    at = {"fit": joined["fit"]}
    parameters = model.generator_.parameters
    arrays = {key: np.zeros_like(value) for key, value in asdict(parameters).items()
              if isinstance(value, np.ndarray)}  # fmt: skip
    arrays["appearance_basis"][0, 0, 3, 3] = 1.0
    square = np.eye(2)
    arrays |= {"latent_scatter": square, "covariance_sum": square, "transform": square}
    arrays |= {"shape_basis_before": arrays["shape_basis"], "step": np.ones(1)}
    arrays |= {"numbers": np.zeros(2)}
    for array, values in arrays.items():
        message = {"do": "adopt", **at, "array": array, "start": 0, "values": values.reshape(-1)}
        answer = transport.call({name: message}, 60.0).answers[name]
        assert not answer, answer
    facts = {"iteration": 1, "n_images": 34, "transcript": "0" * 64, "norms": {}}
    facts["roster"] = list(transport.names)
    told = {"do": "adopted", **at, "iteration": 1, "facts": facts}
    nonce = transport.call({name: told}, 60.0).answers[name]["nonce"]
    wanted = {"do": "sketch", **at, "iteration": 1, "nonce": nonce}
    sketches = transport.call(dict.fromkeys(others, wanted), 60.0).answers
    step = restored["step"] + 1000
    confirm = {"do": "confirm", **at, "step": step, "roster": list(transport.names)}
    answer = transport.call({name: confirm | {"sketches": sketches}}, 60.0).answers[name]
    return f"{answer['error']}: {answer['text']}" if "error" in answer else "adopted"


def try_many_seeds(transport):
    """Return how often a fit with another seed is answered, and the last refusal."""
    n_answered, last = 0, ""
    for seed in SEEDS:
        try:
            fit(transport, seed)
            n_answered += 1
        except FederationError as error:
            last = f"{type(error).__name__}: {error}"
    return [n_answered, last]
