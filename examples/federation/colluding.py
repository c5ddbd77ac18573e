"""What remains free to an attacker: settings within their ranges, and one colluding site.

python -m examples.federation.colluding FOLDER

The same attacks as in `honest_run`, on digits at ten images per component, after a coordinator has
chosen the settings that serve it best, or has a site that works for it. The site adds to its own
answers, within what bounds allow it: fields that turn the modes into other directions in every
iteration, and a log-likelihood that makes every step look like a success. What it knows of its own
images is not counted: the attack is on the images of others.
"""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from anamorph.fitting.sums import Sums
from examples.federation.honest_run import HEADING, N_COMPONENTS, images_of, measure, told
from examples.federation.recorded_run import with_added

RATIO = 10
LIE = 1e5  # added to the log-likelihood with every answer, so that no step is halved or skipped


@dataclass
class Steering:
    """A colluding site that turns the modes into other directions in every iteration.

    Attributes
    ----------
    strength : float
        Norm of what it adds to a gradient, as a share of the honest total's. With a tenth of the
        images, and bounds of ten times the largest honest norm of an image, 1 is within bounds.
    lies : bool, default False
        Whether it also makes every step look like a success.
    stiffness : float, default 0
        How much it adds to the Hessian of the shape basis, as a multiple of the honest total's:
        shape changes little then.
    """

    strength: float
    lies: bool = False
    stiffness: float = 0.0
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    lift: float = 0.0

    def __call__(self, question: str, sums: Sums) -> Sums:
        """Return a total with what the site adds to it."""
        added: dict[str, Any] = {}
        if self.lies and "log_likelihood" in sums.fields and question != "update_latents":
            self.lift += LIE
            added["log_likelihood"] = self.lift
        if question == "shape_derivatives":
            added["hessian"] = self.stiffness * sums["hessian"]
        if question == "appearance_derivatives":
            gradient = sums["gradient"]
            noise = self.generator.normal(size=gradient.shape)
            size = np.linalg.norm(gradient) / np.linalg.norm(noise)
            added["gradient"] = self.strength * size * noise
        return with_added(sums, **added)


def main(folder: Path) -> None:
    """Run all variants."""
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)  # that F fell: sites would see it, and could stop
    rows = []
    print(HEADING)
    for kind in ("digits, appearance only", "digits, shape and appearance"):
        members, others = images_of(kind, None)
        members = members[: RATIO * N_COMPONENTS]
        variants: dict[str, tuple[int, Steering | None]] = {
            "honest, 20 iterations": (20, None),
            "settings: 100 iterations": (100, None),
            "a site that adds as much as all": (20, Steering(1.0)),
            "the same, and lies about the log-likelihood": (20, Steering(1.0, lies=True)),
            "ten times as much, and lies": (20, Steering(10.0, lies=True)),
            "as much as all, and ten times the Hessian of the shape": (
                20,
                Steering(1.0, stiffness=10.0),
            ),
            "the same with a thousand times the Hessian": (20, Steering(1.0, stiffness=1000.0)),
        }
        for name, (n_iterations, change) in variants.items():
            finding, _ = measure(kind, members, others, n_iterations, change)
            print(f"{told(finding)} | {name}", flush=True)
            rows.append({"variant": name, **asdict(finding)})
    (folder / "colluding.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
