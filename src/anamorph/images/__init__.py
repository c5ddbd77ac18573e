"""Collections of images: arrays and files of many kinds, read as float32 with NaN for missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anamorph.exports import lazy_exports

if TYPE_CHECKING:
    from anamorph.images.arrays import ArrayImages as ArrayImages
    from anamorph.images.arrays import ImageFormat as ImageFormat
    from anamorph.images.bids import BidsFile as BidsFile
    from anamorph.images.bids import find_bids as find_bids
    from anamorph.images.collection import ImageCollection as ImageCollection
    from anamorph.images.collection import open_images as open_images
    from anamorph.images.errors import ImageError as ImageError
    from anamorph.images.errors import TableError as TableError
    from anamorph.images.files import FileImages as FileImages
    from anamorph.images.grid import Grid as Grid
    from anamorph.images.hidden import HiddenImages as HiddenImages
    from anamorph.images.inspect import Inspection as Inspection
    from anamorph.images.inspect import inspect_files as inspect_files
    from anamorph.images.participants import Participants as Participants
    from anamorph.images.participants import read_participants as read_participants
    from anamorph.images.readers import match_tissues as match_tissues

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "arrays": ["ArrayImages", "ImageFormat"],
        "bids": ["BidsFile", "find_bids"],
        "collection": ["ImageCollection", "open_images"],
        "errors": ["ImageError", "TableError"],
        "files": ["FileImages"],
        "grid": ["Grid"],
        "hidden": ["HiddenImages"],
        "inspect": ["Inspection", "inspect_files"],
        "participants": ["Participants", "read_participants"],
        "readers": ["match_tissues"],
    },
)
