"""All parties of a consortium on one computer: for tests, benchmarks, and a first try.

    python -m examples.federation.rehearsal consortium.yml FOLDER

does what three hospitals do with `anamorph federation provision`, `site join`, `federation sign`,
`site update` and `site accept`. Between hospitals, each does its own part, or the keys of all are
in one hand.
"""

from __future__ import annotations

import sys
from pathlib import Path

from anamorph.federation.nvflare.accepted import accept
from anamorph.federation.nvflare.consortium import Consortium, read_consortium
from anamorph.federation.nvflare.kit import Kit, open_kit
from anamorph.federation.nvflare.members import MEMBERS
from anamorph.federation.nvflare.membership import join, update
from anamorph.federation.nvflare.provision import provision, sign_requests


def rehearse(consortium: Consortium, folder: Path) -> list[Kit]:
    """Found a consortium, and let all sites join and accept each other.

    Parameters
    ----------
    consortium : Consortium
    folder : Path
        New; gets ``consortium`` with the authority, and a kit for each site.

    Returns
    -------
    list of Kit
        The coordinator's first.
    """
    place = folder / "consortium"
    provision(consortium, place)
    requests = {name: join(folder / name, name) for name in consortium.sites}
    sign_requests(place, [request.path for request in requests.values()])
    for name in consortium.sites:
        update(folder / name, place / MEMBERS)
        for other, request in requests.items():
            if other != name:
                accept(folder / name, other, request.fingerprint)
    sites = [open_kit(folder / name, as_site=True) for name in consortium.sites]
    return [open_kit(place / "coordinator", as_site=False), *sites]


if __name__ == "__main__":
    for made in rehearse(read_consortium(Path(sys.argv[1])), Path(sys.argv[2])):
        print(f"{made.name}: {made.folder}")
