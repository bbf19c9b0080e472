"""Compares a kernel file with its reference: ``kernelmark kernel`` under the name that other tools call."""

from __future__ import annotations

import sys

from kernelmark.cli import main

if __name__ == "__main__":
    main(["kernel", *sys.argv[1:]])
