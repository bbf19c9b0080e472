"""Which results may be compared: a named list of what must be equal, and a refusal that says what is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernelmark.errors import RecordError, UsageError

__all__ = ["LIKENESS", "compare_results"]

_ABSENT = "(absent)"

LIKENESS: tuple[str, ...] = (
    "timer",
    "benchmark_protocol.version",
    "benchmark_protocol.instrument",
    "benchmark_protocol.reading",
    "benchmark_protocol.statistic",
    "benchmark_protocol.budgets_ms",
    "benchmark_protocol.cooldown_s",
    "benchmark_protocol.cache",
    "benchmark_protocol.flush_bytes",
    "benchmark_protocol.gpu_sleep_cycles",
    "benchmark_protocol.world_size",
    "benchmark_protocol.device.kind",
    "benchmark_protocol.device.name",
    "benchmark_protocol.device.threads",
    "benchmark_protocol.device.driver",
    "benchmark_protocol.environment.kernelmark",
    "benchmark_protocol.environment.python",
    "benchmark_protocol.environment.libraries.torch",
    "benchmark_protocol.environment.libraries.triton",
    "benchmark_protocol.environment.hostname_hash",
)
"""What two results must share to be comparable. The rounds are not among it: more of them are only surer."""


def compare_results(
    before: Mapping[str, Any], after: Mapping[str, Any], *, ignore: Iterable[str] = ()
) -> dict[str, dict[str, float]]:
    """Compare two results of ``bench`` for the implementations that both have.

    The ratio is ``before / after``: above 1 means that ``after`` is faster. It has no interval, since rounds of
    two runs do not pair; time both in one ``bench`` for a comparison under the same conditions.

    Args:
        before: A result, as returned or as read back from JSON.
        after: Another one.
        ignore: Keys of ``LIKENESS`` that may differ, such as the library whose change is the question.

    Raises:
        UsageError: ``ignore`` names something that is not in ``LIKENESS``.
        RecordError: the results differ in what must be equal, or share no implementation.
    """
    skipped = set(ignore)
    if unknown := skipped - set(LIKENESS):
        raise UsageError(f"ignore={sorted(unknown)!r}: give keys of kernelmark.launches.LIKENESS")
    differ = [
        f"{key} is {old!r} and {new!r}"
        for key in LIKENESS
        if key not in skipped and (old := _at(before, key)) != (new := _at(after, key))
    ]
    if differ:
        raise RecordError(
            f"these results are not alike and are not compared: {'; '.join(differ)}; measure again under the same"
            " conditions, or name in ignore= what may differ"
        )
    shared = [name for name in before["impls"] if name in after["impls"]]
    if not shared:
        raise RecordError(
            f"these results share no implementation: {', '.join(before['impls'])} and {', '.join(after['impls'])}"
        )
    return {name: _ratio(before["impls"][name], after["impls"][name]) for name in shared}


def _ratio(before_us: float, after_us: float) -> dict[str, float]:
    return {"before": before_us, "after": after_us, "ratio": before_us / after_us}


def _at(result: Mapping[str, Any], key: str) -> Any:
    found: Any = result
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return _ABSENT
        found = found[part]
    return found
