"""Runs KernelBench's kernels: the same as ``kernelmark kernelbench``."""

import sys

from kernelmark.cli import main

main(["kernelbench", *sys.argv[1:]], prog_name="kernelmark")
