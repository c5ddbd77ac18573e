"""What a site lends to the federation: its images and policy, opened again for every job."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from anamorph.federation.nvflare.accepted import AcceptedKeys
from anamorph.federation.nvflare.kit import Kit, write_json
from anamorph.federation.protocol.certificates import key_from_pem
from anamorph.federation.protocol.errors import ConsortiumError
from anamorph.federation.protocol.identity import Identity
from anamorph.federation.site.agent import SiteAgent
from anamorph.federation.site.policy import Policy
from anamorph.images.files import FileImages
from anamorph.images.labels import MOST_CLASSES


@dataclass(frozen=True)
class SiteData:
    """How to open the images of a site, and under which policy.

    Attributes
    ----------
    files : list of lists of str
        Absolute paths: one for every image, or one for every image and class of tissue.
    likelihood : str
        As in `FileImages`, like the next four.
    channel_axis, n_classes : int or None, default None
    resample : bool, default False
    pad : int, default 0
    cache : str or None, default None
        Folder for decoded images. None: they are not kept.
    policy : str or None, default None
        Path of a TOML file. None: the default policy.
    memory_budget, n_threads : int or None, default None
        As in `ShapeAppearanceModel`.
    device : {"cpu", "cuda", "auto"}, default "cpu"
    scale : str, float or None, default None
        How intensities are scaled, as in `FileImages`; the same at all sites.
    columns : dict of lists of str, default empty
        Columns by which analyses may group or weight: a text for every image, by name.
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
    scale: str | float | None = None
    columns: dict[str, list[str]] = field(default_factory=dict)

    def write(self, kit: Kit) -> None:
        """Write this into a kit, where the process of a job finds it."""
        kit.work.mkdir(exist_ok=True)
        write_json(_data_path(kit), asdict(self))

    def open_images(self) -> FileImages:
        """Open the images.

        A class that occurs only at other sites has its number here too: labels are 0 to the
        largest, as at all sites, and not only those that occur here.
        """
        images = self._open_with(self.n_classes)
        if images.format.labels is None:
            return images
        return self._open_with(min(images.format.labels[-1] + 1, MOST_CLASSES))

    def _open_with(self, n_classes: int | None) -> FileImages:
        return FileImages(
            [group[0] if len(group) == 1 else group for group in self.files],
            self.likelihood,
            self.channel_axis,
            n_classes,
            resample=self.resample,
            pad=self.pad,
            cache=self.cache,
            scale=self.scale,
        )

    def read_policy(self) -> Policy:
        """Read the policy."""
        return Policy() if self.policy is None else Policy.read(Path(self.policy))


def read_site_data(kit: Kit) -> SiteData | None:
    """Return what was last lent with a kit; None before the first time."""
    path = _data_path(kit)
    return SiteData(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def open_identity(kit: Kit) -> Identity:
    """Return the identity of a site: its own key, and those that were accepted there."""
    path = kit.startup / "client.key"
    return Identity(kit.name, key_from_pem(path.read_bytes(), str(path)), AcceptedKeys(kit))


def open_agent(kit: Kit, identity: Identity) -> SiteAgent:
    """Return the agent of a site, with the data that was last written into its kit."""
    data = read_site_data(kit)
    if data is None:
        raise ConsortiumError(f"no images were lent with {kit.folder}: run 'anamorph site start'")
    return SiteAgent(
        kit.name,
        data.open_images(),
        data.read_policy(),
        kit.work,
        identity,
        columns=data.columns,
        memory_budget=data.memory_budget,
        n_threads=data.n_threads,
        device=data.device,
    )


def _data_path(kit: Kit) -> Path:
    return kit.work / "site.json"
