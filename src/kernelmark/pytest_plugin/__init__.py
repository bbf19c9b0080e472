"""The pytest plugin: options, one session per run, a line per comparison, the table at the end.

It is loaded in every pytest run of an environment that has kernelmark, so it imports nothing heavy until
a test compares something, and stays silent in a run that records nothing.
"""

from __future__ import annotations

from typing import Any

import pytest

from kernelmark.pytest_plugin.plugin import KernelmarkPlugin

__all__: list[str] = []

_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--kernelmark-verify", "--tileops-verify"),
        {
            "action": "store_true",
            "dest": "kernelmark_verify",
            "help": "check every implementation, time nothing",
        },
    ),
    (
        ("--kernelmark-device",),
        {"default": "auto", "metavar": "NAME", "help": "auto (the best there is), cpu, cuda, cuda:1, ..."},
    ),
    (("--kernelmark-timer",), {"metavar": "NAME", "help": "an instrument other than the device's own"}),
    (
        ("--kernelmark-cache",),
        {"default": "cold", "choices": ("cold", "warm"), "help": "the caches when a timed call starts"},
    ),
    (
        ("--kernelmark-sample-ms",),
        {"type": float, "metavar": "MS", "help": "sampling budget of each implementation (default 100)"},
    ),
    (
        ("--kernelmark-prepare-ms",),
        {
            "type": float,
            "metavar": "MS",
            "help": "what the flushes around an implementation's samples may take (default 500)",
        },
    ),
    (
        ("--kernelmark-blocks",),
        {"type": int, "metavar": "N", "help": "blocks of A B C C B A (default 10; 1 gives no interval)"},
    ),
    (
        ("--kernelmark-out",),
        {"metavar": "DIR", "help": "keep the run here (default: runs/<time>, in the root folder)"},
    ),
    (
        ("--kernelmark-resume",),
        {
            "metavar": "RUN",
            "help": "go on with this run: keep what it has, measure what is missing or failed",
        },
    ),
    (
        ("--kernelmark-shard",),
        {"metavar": "I/N", "help": "the cases of part I of N; `kernelmark merge` makes one run of them"},
    ),
    (
        ("--require-baselines",),
        {"action": "store_true", "help": "fail where a baseline is unavailable"},
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the group ``kernelmark``."""
    group = parser.getgroup("kernelmark", "kernel benchmarks")
    for names, settings in _OPTIONS:
        group.addoption(*names, **settings)


_PLUGIN = pytest.StashKey[KernelmarkPlugin]()


def pytest_configure(config: pytest.Config) -> None:
    """Register what takes part in this run."""
    config.stash[_PLUGIN] = KernelmarkPlugin(config)
    config.pluginmanager.register(config.stash[_PLUGIN], "kernelmark-run")


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the run where nothing else did."""
    if (plugin := config.stash.get(_PLUGIN, None)) is not None:
        plugin.end()
