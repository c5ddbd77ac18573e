"""Cases of stored files and of settings (`storage_cases`) in the list of `benchmarks.fuzz`."""

from benchmarks.fuzz import case
from benchmarks.storage_cases import STORAGE_CASES

for function in STORAGE_CASES:
    case(function)
