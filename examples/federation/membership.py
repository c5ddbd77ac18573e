"""Who was in the fit, told by the finished model: the release check as images per component fall.

python -m examples.federation.membership FOLDER [FACES]
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from anamorph import ShapeAppearanceModel
from anamorph.federation import release_check
from examples.federation.honest_run import KINDS, N_COMPONENTS, RATIOS, images_of


def main(folder: Path, faces: Path | None) -> None:
    """Check models of all kinds, fitted to all numbers of images."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    print(f"{'':30s} {'N/K':>5} {'AUC':>6} {'interval':>14} {'found':>6}  by")
    for kind in KINDS:
        if kind.startswith("faces") and faces is None:
            continue
        members, others = images_of(kind, faces)
        members, others = members.astype(np.float32), others.astype(np.float32)
        for ratio in RATIOS:
            n_images = round(ratio * N_COMPONENTS)
            if n_images > len(members):
                continue
            model = ShapeAppearanceModel(N_COMPONENTS, **KINDS[kind])  # type: ignore[arg-type]
            result = release_check(model.fit(members[:n_images]), members[:n_images], others)
            best = result.best
            print(
                f"{kind:30s} {n_images / N_COMPONENTS:5.1f} {best.auc:6.2f} {best.low:6.2f} to "
                f"{best.high:.2f} {best.found:6.0%}  {best.name}: {result.grade}",
                flush=True,
            )
            rows.append({"kind": kind, "ratio": ratio, **asdict(result), "grade": result.grade})
    (folder / "membership.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    photographs = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."), photographs)
