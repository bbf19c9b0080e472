"""The way in for launches: no-argument closures, references with builders, and several ranks at once."""

from kernelmark.launches.bench import bench
from kernelmark.launches.ranks import DistributedBenchContext
from kernelmark.launches.result import LIKENESS, compare_results

__all__ = ["LIKENESS", "DistributedBenchContext", "bench", "compare_results"]
