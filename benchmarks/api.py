"""The names a benchmark of this repository needs, from the engine."""

from kernelmark import Case, Entry, Implementation, Runner, Unavailable, cases

__all__ = ["Case", "Entry", "Implementation", "Runner", "Unavailable", "cases"]
