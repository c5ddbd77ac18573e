"""What a site lends to the federation: its images and its policy, opened anew for every job."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from anamorph.federation.masking.identity import Identity
from anamorph.federation.nvflare.kit import Kit
from anamorph.federation.site.agent import SiteAgent
from anamorph.federation.site.policy import Policy
from anamorph.images.files import FileImages


@dataclass(frozen=True)
class SiteData:
    """How to open the images of a site, and under which policy.

    Attributes
    ----------
    files : list of lists of str
        Absolute paths: one for every image, or one for every image and class of tissue.
    likelihood : str
    channel_axis, n_classes : int or None
    resample : bool
    pad : int
        As in `FileImages`.
    cache : str or None
        Folder for decoded images.
    policy : str or None
        A TOML file; None stands for the default policy.
    memory_budget, n_threads : int or None
    device : {"cpu", "cuda", "auto"}
        As in `ShapeAppearanceModel`.
    columns : dict of lists of str
        What analyses may group or weight by: a text for every image, by name.
    """

    files: list[list[str]]
    likelihood: str
    channel_axis: int | None = None
    n_classes: int | None = None
    resample: bool = False
    pad: int = 0
    cache: str | None = None
    policy: str | None = None
    memory_budget: int | None = None
    n_threads: int | None = None
    device: str = "cpu"
    columns: dict[str, list[str]] = field(default_factory=dict)

    def write(self, kit: Kit) -> None:
        """Leave this with a kit, where the process of a job finds it."""
        _path(kit).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    def open_images(self) -> FileImages:
        """Return the images."""
        return FileImages(
            [group[0] if len(group) == 1 else group for group in self.files],
            self.likelihood,
            self.channel_axis,
            self.n_classes,
            resample=self.resample,
            pad=self.pad,
            cache=self.cache,
        )

    def read_policy(self) -> Policy:
        """Return the policy."""
        return Policy() if self.policy is None else Policy.read(Path(self.policy))


def open_agent(kit: Kit) -> SiteAgent:
    """Return the agent of a site, as its kit was last told to."""
    data = SiteData(**json.loads(_path(kit).read_text(encoding="utf-8")))
    certificates = {site: kit.certificate(site).read_bytes() for site in kit.sites}
    key = (kit.startup / "client.key").read_bytes()
    return SiteAgent(
        kit.name,
        data.open_images(),
        data.read_policy(),
        kit.work,
        Identity.from_pem(kit.name, key, certificates),
        columns=data.columns,
        memory_budget=data.memory_budget,
        n_threads=data.n_threads,
        device=data.device,
    )


def _path(kit: Kit) -> Path:
    return kit.work / "site.json"
