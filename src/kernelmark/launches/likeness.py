"""Which results may be compared: a named list of what must be equal, and a refusal that says what is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kernelmark.errors import RecordError, UsageError
from kernelmark.records import Metadata, Unlike, refuse_unlike

__all__ = ["LIKENESS", "compare_results"]

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

_KEYS = tuple(Metadata(key, object, Unlike.NOT_COMPARED) for key in LIKENESS)


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
    refuse_unlike(before, after, ignore=skipped, keys=_KEYS)
    shared = [name for name in before["impls"] if name in after["impls"]]
    if not shared:
        raise RecordError(
            f"these results share no implementation: {', '.join(before['impls'])} and {', '.join(after['impls'])}"
        )
    return {name: _ratio(before["impls"][name], after["impls"][name]) for name in shared}


def _ratio(before_us: float, after_us: float) -> dict[str, float]:
    return {"before": before_us, "after": after_us, "ratio": before_us / after_us}
