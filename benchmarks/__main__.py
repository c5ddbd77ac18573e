"""All ratios, one after the other."""

from benchmarks import geometry, model, solvers

for benchmark in (geometry, solvers, model):
    benchmark.main()
    print()
