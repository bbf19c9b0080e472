"""A small op library: kernels for GPUs, compiled paths for CPUs, benchmarked with kernelmark."""
