"""Where arrays live (NumPy, CuPy, mapped files), and how much is worked on at a time."""

from anamorph.arrays.batches import DEFAULT_MEMORY_BUDGET, BatchPlanner
from anamorph.arrays.devices import DEVICES, chosen_device, find_gpu
from anamorph.arrays.namespaces import array_namespace, beside, is_on_device, to_host
from anamorph.arrays.readable import ReadableImages

__all__ = [
    "DEFAULT_MEMORY_BUDGET",
    "DEVICES",
    "BatchPlanner",
    "ReadableImages",
    "array_namespace",
    "beside",
    "chosen_device",
    "find_gpu",
    "is_on_device",
    "to_host",
]
