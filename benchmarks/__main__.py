"""All ratios, one after the other."""

from benchmarks import encoding, geometry, model, solvers

for benchmark in (geometry, solvers, model, encoding):
    benchmark.main()
    print()
