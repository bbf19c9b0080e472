"""Ranks of a torch process group: they meet over gloo, with a time limit, and find out who is missing.

Every meeting is one reduction of the same two numbers, a flag and a value. So a rank that gives up can raise the
flag whatever the others are waiting for, and all of them have met equally often afterwards.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from kernelmark.errors import DistributedError, UsageError

__all__ = ["HostStream", "TorchRanks"]

_ROLL_CALL_S = 10.0
"""How much later than the first another rank may notice that a meeting failed, within the time limit: it may be
in the middle of a launch."""

_POLL_S = 0.02
_LONGEST_REASON = 500


class HostStream:
    """Stands for a stream where calls are done when they return."""

    def synchronize(self) -> None:
        """Do nothing: there is nothing to wait for."""


class TorchRanks:
    """This rank among those of ``group``.

    The meetings go over a gloo group of their own, so that their time limit is theirs, and a waiting rank keeps
    no GPU busy. On GPUs a barrier also lets the devices meet, in the group's own backend.

    Raises:
        UsageError: torch has no process group yet, or this process is not in ``group``.
    """

    def __init__(self, group: dist.ProcessGroup | None, device: str | None, timeout_s: float) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise UsageError(
                "there is no process group: call torch.distributed.init_process_group() on every rank first"
            )
        self.rank, self.world_size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise UsageError(
                "this process is not a member of the group: call from_torch() on its members only"
            )
        self.device = device or _device_of(group)
        self.stream: Any = HostStream()
        self._meet_devices: Callable[[], object] | None = None
        if self.device.startswith("cuda"):
            self.stream = torch.cuda.current_stream(self.device)
            self._meet_devices = _device_barrier(group, self.device) if _connects_gpus(group) else None
        self._timeout_s = timeout_s
        self._control = dist.new_group(
            dist.get_process_group_ranks(group),
            backend="gloo",
            timeout=timedelta(seconds=timeout_s),
            use_local_synchronization=True,
        )
        self._store = _store()
        self._prefix = f"kernelmark/{self._control.group_name}"  # type: ignore[union-attr]
        self._met = 0
        self._broken = ""

    def barrier(self) -> None:
        """Return once every rank is here; on GPUs, queue a meeting of the devices as well.

        The host waits for the other hosts and not for its device, so what is queued there stays queued.
        """
        self._meet(0.0)
        if self._meet_devices is not None:
            self._meet_devices()

    def max_reduce(self, value: float) -> float:
        """Return the largest ``value`` over all ranks."""
        return self._meet(value)

    def leave(self, reason: str) -> None:
        """Raise the flag at the next meeting, so that the others end with this reason."""
        self._store.set(self._key("reason", self.rank), reason[:_LONGEST_REASON])
        self._met += 1
        self._reduce(self.rank + 1.0, 0.0)

    def _meet(self, value: float) -> float:
        if self._broken:
            raise DistributedError(f"these ranks have lost each other: {self._broken}; connect new ones")
        self._met += 1
        started = time.monotonic()
        try:
            flag, largest = self._reduce(0.0, value)
        except RuntimeError as error:
            self._broken = self._who_is_missing(time.monotonic() - started, error)
            raise DistributedError(self._broken) from error
        if flag:
            who = int(flag) - 1
            raise DistributedError(f"rank {who} left the benchmark: {self._reason_of(who)}")
        return largest

    def _reduce(self, flag: float, value: float) -> tuple[float, float]:
        both = torch.tensor([flag, value], dtype=torch.float64, device="cpu")
        dist.all_reduce(both, dist.ReduceOp.MAX, group=self._control)
        return float(both[0]), float(both[1])

    def _key(self, what: str, rank: int) -> str:
        return f"{self._prefix}/{what}/{self._met}/{rank}"

    def _reason_of(self, who: int) -> str:
        # the rank that leaves counts the meeting after it has stored its reason
        key = f"{self._prefix}/reason/{self._met - 1}/{who}"
        return (
            self._store.get(key).decode(errors="replace") if self._store.check([key]) else "no reason given"
        )

    def _who_is_missing(self, waited_s: float, error: Exception) -> str:
        """Call the roll: whoever also noticed that this meeting failed is there, the others are not.

        Only the neighbours of a rank that died notice it at once. They close their own connections, so that the
        others do not wait for their time limit before they notice too.
        """
        told = _in_short(error)
        deadline = time.monotonic() + min(self._timeout_s, _ROLL_CALL_S)
        missing = [rank for rank in range(self.world_size) if rank != self.rank]
        try:
            self._store.set(self._key("here", self.rank), "")
            dist.destroy_process_group(self._control)  # type: ignore[arg-type] - torch's stub forgets what it made
            while missing and time.monotonic() < deadline:
                missing = [rank for rank in missing if not self._store.check([self._key("here", rank)])]
                time.sleep(_POLL_S)
        except RuntimeError:
            return (
                f"the ranks could not meet after {waited_s:.1f} s ({told}), and their store is gone with the process"
                " that holds it, usually rank 0"
            )
        if not missing:
            return f"the ranks could not meet after {waited_s:.1f} s ({told}), though all of them answer"
        names = ", ".join(map(str, missing))
        return (
            f"rank {names} of {self.world_size} does not answer: it died, hangs, or is busy for longer than"
            f" timeout_s={self._timeout_s:g} ({told})"
        )


def _in_short(error: Exception) -> str:
    """Give the first sentence of gloo's message, without the place in its source."""
    first = str(error).strip().partition("\n")[0]
    return re.sub(r"^\[[^]]*\] ?", "", first).partition(". ")[0][:200] or type(error).__name__


def _device_of(group: dist.ProcessGroup | None) -> str:
    if _connects_gpus(group) and torch.cuda.is_available():
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu"


def _connects_gpus(group: dist.ProcessGroup | None) -> bool:
    """Whether the group reduces on the devices themselves; gloo takes their data to the host and waits there."""
    return "nccl" in dist.get_backend_config(group)


def _device_barrier(group: dist.ProcessGroup | None, device: str) -> Callable[[], object]:
    """Give what lets the devices meet on the current stream; nothing waits for it on the host."""
    token = torch.zeros(1, device=device)

    def meet() -> None:
        dist.all_reduce(token, group=group)

    return meet


def _store() -> Any:
    # torch has no public name for the store that its ranks already share
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()
