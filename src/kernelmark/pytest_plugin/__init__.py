"""The pytest plugin: options, one session per run, a line per comparison, the table at the end.

It is loaded in every pytest run of an environment that has kernelmark, so it imports nothing heavy until
a test compares something, and stays silent in a run that records nothing.
"""

from __future__ import annotations

import pytest

from kernelmark.pytest_plugin.plugin import KernelmarkPlugin

__all__: list[str] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the group ``kernelmark``."""
    add = parser.getgroup("kernelmark", "kernel benchmarks").addoption
    check = "check every implementation, time nothing"
    add("--kernelmark-verify", "--tileops-verify", action="store_true", dest="kernelmark_verify", help=check)
    best = "auto (the best there is), cpu, cuda, cuda:1, ..."
    add("--kernelmark-device", default="auto", metavar="NAME", help=best)
    add("--kernelmark-timer", metavar="NAME", help="an instrument other than the device's own")
    caches = "the caches when a timed call starts"
    add("--kernelmark-cache", default="cold", choices=("cold", "warm"), help=caches)
    samples = "sampling budget of each implementation (default 100)"
    add("--kernelmark-sample-ms", type=float, metavar="MS", help=samples)
    flushes = "what the flushes around an implementation's samples may take (default 500)"
    add("--kernelmark-prepare-ms", type=float, metavar="MS", help=flushes)
    blocks = "blocks of A B C C B A (default 10; 1 gives no interval)"
    add("--kernelmark-blocks", type=int, metavar="N", help=blocks)
    out = "keep the run here (default: runs/<time>, in the root folder)"
    add("--kernelmark-out", metavar="DIR", help=out)
    resume = "go on with this run: keep what it has, measure what is missing or failed"
    add("--kernelmark-resume", metavar="RUN", help=resume)
    shard = "the cases of part I of N; `kernelmark merge` makes one run of them"
    add("--kernelmark-shard", metavar="I/N", help=shard)
    add("--require-baselines", action="store_true", help="fail where a baseline is unavailable")


_PLUGIN = pytest.StashKey[KernelmarkPlugin]()


def pytest_configure(config: pytest.Config) -> None:
    """Register what takes part in this run."""
    config.stash[_PLUGIN] = KernelmarkPlugin(config)
    config.pluginmanager.register(config.stash[_PLUGIN], "kernelmark-run")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the run where nothing else did."""
    if (plugin := config.stash.get(_PLUGIN, None)) is not None:
        plugin.end()
