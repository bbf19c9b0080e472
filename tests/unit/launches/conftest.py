"""Ranks that are threads of one process, which meet and reduce like processes do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from kernelmark.errors import DistributedError
from kernelmark.launches.ranks import DistributedBenchContext

LIMIT_S = 20
"""A meeting that takes longer has lost a rank; then every thread gets an error."""


class Meeting:
    """What the threads share."""

    def __init__(self, size: int, single_precision: bool) -> None:
        self.size, self.single = size, single_precision
        self.given: list[float] = [0.0] * size
        self.barrier = threading.Barrier(size)

    def meet(self) -> None:
        self.barrier.wait(LIMIT_S)

    def largest(self, rank: int, value: float) -> float:
        self.given[rank] = float(np.float32(value)) if self.single else value
        self.meet()
        found = max(self.given)
        self.meet()  # nobody overwrites what another one still has to read
        return found


class Stream:
    def synchronize(self) -> None: ...


@pytest.fixture
def on_ranks() -> Callable[..., list[Any]]:
    """Run ``body(context)`` on every rank; gives what each returned or raised, in the order of ranks."""

    def run(
        size: int,
        body: Callable[[DistributedBenchContext], Any],
        *,
        single_precision: bool = False,
        log: Any = None,
    ) -> list[Any]:
        meeting = Meeting(size, single_precision)

        def one(rank: int) -> Any:
            def barrier() -> None:
                if log is not None:
                    log[rank].append("barrier")
                meeting.meet()

            def leave(reason: str) -> None:
                meeting.barrier.abort()

            context = DistributedBenchContext(
                rank, size, barrier, lambda value: meeting.largest(rank, value), Stream(), leave=leave
            )
            try:
                return body(context)
            except DistributedError as error:
                return error  # every rank gets one, or will
            except Exception as error:  # noqa: BLE001 - the test looks at what each rank raised
                meeting.barrier.abort()
                return error

        with ThreadPoolExecutor(size) as pool:
            return list(pool.map(one, range(size)))

    return run
