"""Time one callable without a case: the timing that ``benchmarks.api`` uses, by itself."""

from kernelmark.timing import Budget, TimingOptions, bench_kernel

__all__ = ["Budget", "TimingOptions", "bench_kernel"]
