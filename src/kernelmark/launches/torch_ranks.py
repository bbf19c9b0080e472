"""Ranks of a torch process group: they meet over gloo, with a time limit, and find out who is missing.

Every meeting is one reduction of the same three numbers: a flag, a value, and whether devices were parted. So a rank
that gives up can raise the flag whatever the others are waiting for, and all of them have met equally often
afterwards.

On GPUs a rank that is gone leaves the others' devices waiting in a kernel, and with them their hosts, which then
never come to the next meeting. ``watching`` parts the devices, so that they do.
"""

from __future__ import annotations

import math
import re
import secrets
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from kernelmark.errors import DistributedError, UsageError
from kernelmark.launches.watching import DeviceWatch, Loss, Peers, this_process

__all__ = ["HostStream", "TorchRanks", "connects_gpus", "device_barrier", "own_limit_s", "part_devices"]

_ROLL_CALL_S = 10.0
"""How much later than the first another rank may notice that a meeting failed, within the time limit: it may be
in the middle of a launch."""

_POLL_S = 0.02
_TOKENS = 1 << 52  # what a double holds exactly
_LONGEST_REASON = 500

_SHARE_OF_OWN_LIMIT = 0.8
"""How much of torch's own limit devices may wait: at its end torch kills the process, and what was measured with it."""


class HostStream:
    """Stands for a stream where calls are done when they return."""

    def synchronize(self) -> None:
        """Do nothing: there is nothing to wait for."""


class _Met(NamedTuple):
    """The largest of what each rank gave."""

    flag: float
    value: float
    parted: float


class TorchRanks:
    """This rank among those of ``group``.

    The meetings go over a gloo group of their own, so that their time limit is theirs, and a waiting rank keeps
    no GPU busy. On GPUs a barrier also lets the devices meet, in the group's own backend.

    Raises:
        UsageError: torch has no process group yet, or this process is not in ``group``.
        DistributedError: the ranks, or their devices, cannot meet.
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
        self._timeout_s = timeout_s
        self._control: Any = dist.new_group(
            dist.get_process_group_ranks(group),
            backend="gloo",
            timeout=timedelta(seconds=timeout_s),
            use_local_synchronization=True,
        )
        self._store = _store()
        self._met = 0
        self._broken = ""
        self._meet_devices: Callable[[], object] | None = None
        self._watch: DeviceWatch | None = None
        self._peers = Peers({})
        self._others = [rank for rank in range(self.world_size) if rank != self.rank]
        self._prefix = f"kernelmark/{self._control.group_name}"
        # torch may give the name again once this group is broken, and what was stored under it is still there
        self._prefix = f"kernelmark/{self._meet(secrets.randbelow(_TOKENS)):.0f}"
        self._peers = self._find_peers()
        if self.device.startswith("cuda"):
            self._connect_devices(group)

    def barrier(self) -> None:
        """Return once every rank is here; on GPUs, queue a meeting of the devices as well.

        The host waits for the other hosts and not for its device, so what is queued there stays queued.
        """
        self._meet(0.0)
        if self._watch is not None:
            self._watch.arm()
        if self._meet_devices is not None:
            self._meet_devices()

    def max_reduce(self, value: float) -> float:
        """Return the largest ``value`` over all ranks."""
        return self._meet(value)

    def leave(self, reason: str) -> str:
        """Raise the flag at the next meeting, so that the others end with this reason; say who else has left.

        Raises:
            DistributedError: another process is gone, or this device waited for one in vain, which may well be why
                this rank fails.
            RuntimeError: the others do not answer.
        """
        if self._watch is not None and self._watch.disarm() is not None:
            self._meet(0.0)
        if self._broken:
            return ""
        self._store.set(self._reason_key(self._met, self.rank), reason[:_LONGEST_REASON])
        self._met += 1
        try:
            with self._finding_who_is_gone():
                met = self._reduce(self.rank + 1.0, 0.0)
        except DistributedError:
            if self._peers.ended():
                raise
            raise RuntimeError(self._broken) from None
        if met.parted:
            self._broken = "this rank left while the devices of the others waited for it"
        who = int(met.flag) - 1
        return "" if who == self.rank else f"rank {who} left too: {self._reason_of(who)}"

    def _connect_devices(self, group: dist.ProcessGroup | None) -> None:
        """Watch the peers, and let the devices meet once, so that NCCL is connected before anything is timed."""
        self.stream = torch.cuda.current_stream(self.device)
        meet = device_barrier(group, self.device) if connects_gpus(group) else None
        if self.world_size > 1:
            self._watch = self.watch_over(part_devices, limit_s=min(self._timeout_s, own_limit_s(group)))
        if meet is None:
            return
        self._meet_devices = meet
        try:
            with torch.cuda.stream(self.stream):
                self.barrier()
                self.stream.synchronize()
        except DistributedError:
            raise
        except RuntimeError as error:
            if self._watch is not None:
                self._watch.disarm()
            raise DistributedError(
                f"the devices of the ranks cannot meet over NCCL; rank {self.rank} uses {self.device}"
                f" ({_in_short(error)}). Each rank needs a device of its own: call torch.cuda.set_device(local_rank)"
                " before from_torch(), or give device="
            ) from error
        self._meet(0.0)

    def _find_peers(self) -> Peers:
        """Tell the others which process this is, and learn which ones they are."""
        key = f"{self._prefix}/process"
        self._store.set(f"{key}/{self.rank}", this_process())
        self._meet(0.0)
        return Peers({rank: self._store.get(f"{key}/{rank}").decode() for rank in self._others})

    def watch_over(self, part: Callable[[], object], *, limit_s: float) -> DeviceWatch:
        """Give a watch over the other ranks, which calls ``part`` where one of them is gone."""

        def look() -> Loss | None:
            if self._peers.ended():
                return Loss.ENDED
            try:
                left = any(self._store.check([self._reason_key(self._met, rank)]) for rank in self._others)
            except RuntimeError:  # the store went with the process that held it
                return Loss.ENDED
            return Loss.LEFT if left else None

        return DeviceWatch(look, part, limit_s=limit_s)

    def _meet(self, value: float) -> float:
        if self._broken:
            raise DistributedError(f"these ranks have lost each other: {self._broken}; connect new ones")
        loss = self._watch.disarm() if self._watch is not None else None
        self._met += 1
        with self._finding_who_is_gone():
            if loss is Loss.SILENT:  # they have been waited for already
                raise RuntimeError("the device waited for the others until the time limit")
            met = self._reduce(0.0, value)
        if met.flag:
            who = int(met.flag) - 1
            told = f"rank {who} left the benchmark: {self._reason_of(who)}"
            self._broken = f"{told}, while other devices waited for it" if met.parted else ""
            raise DistributedError(told)
        if met.parted:
            self._broken = "a device gave up waiting for the others"
            raise DistributedError(self._broken)
        return met.value

    @contextmanager
    def _finding_who_is_gone(self) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        except RuntimeError as error:
            self._broken = self._who_is_missing(time.monotonic() - started, error)
            raise DistributedError(self._broken) from error

    def _reduce(self, flag: float, value: float) -> _Met:
        parted = self._watch is not None and self._watch.loss is not None
        given = torch.tensor([flag, value, float(parted)], dtype=torch.float64, device="cpu")
        dist.all_reduce(given, dist.ReduceOp.MAX, group=self._control)
        return _Met(*given.tolist())

    def _reason_key(self, met: int, rank: int) -> str:
        return f"{self._prefix}/reason/{met}/{rank}"

    def _here_key(self, rank: int) -> str:
        # not by meeting: what a rank sent before it was killed can be lost, and some then fail one meeting earlier
        return f"{self._prefix}/here/{rank}"

    def _reason_of(self, who: int) -> str:
        # the rank that leaves counts the meeting after it has stored its reason
        key = self._reason_key(self._met - 1, who)
        return (
            self._store.get(key).decode(errors="replace") if self._store.check([key]) else "no reason given"
        )

    def _close(self, error: Exception) -> None:
        """Close this rank's connections: torch does so once nothing refers to the group, frames of its own included."""
        traceback.clear_frames(error.__traceback__)
        group, self._control = self._control, None
        dist.destroy_process_group(group)

    def _who_is_missing(self, waited_s: float, error: Exception) -> str:
        """Call the roll: whoever also noticed that this meeting failed is there, the others are not.

        Only the neighbours of a rank that died notice it at once. They close their own connections, so that the
        others do not wait for their time limit before they notice too.
        """
        told = _in_short(error)
        if self._watch is not None and self._watch.trouble:
            told += f"; and NCCL could not be aborted: {self._watch.trouble}"
        deadline = time.monotonic() + min(self._timeout_s, _ROLL_CALL_S)
        missing, ended = self._others, set[int]()
        try:
            self._store.set(self._here_key(self.rank), "")
            self._close(error)
            while not ended.issuperset(missing) and time.monotonic() < deadline:
                missing = [rank for rank in missing if not self._store.check([self._here_key(rank)])]
                ended = set(self._peers.ended())
                time.sleep(_POLL_S)
        except RuntimeError:
            if ended := set(self._peers.ended()):
                return f"rank {_listed(ended)} of {self.world_size} died: its process has ended ({told})"
            return (
                f"the ranks could not meet after {waited_s:.1f} s ({told}), and their store is gone with the process"
                " that holds it, usually rank 0"
            )
        if not missing:
            return f"the ranks could not meet after {waited_s:.1f} s ({told}), though all of them answer"
        if ended.issuperset(missing):
            return f"rank {_listed(missing)} of {self.world_size} died: its process has ended ({told})"
        return (
            f"rank {_listed(missing)} of {self.world_size} does not answer: it died, hangs, or is busy for longer than"
            f" timeout_s={self._timeout_s:g} ({told})"
        )


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))


def _in_short(error: Exception) -> str:
    """Give the first sentence of gloo's message, without the place in its source."""
    first = str(error).strip().partition("\n")[0]
    sentence = re.sub(r"^\[[^]]*\] ?", "", first).partition(". ")[0]  # house: shortened, nothing else
    return sentence[:200] or type(error).__name__


def _device_of(group: dist.ProcessGroup | None) -> str:
    if connects_gpus(group) and torch.cuda.is_available():
        return f"cuda:{torch.cuda.current_device()}"
    return "cpu"


def _store() -> Any:
    # torch has no public name for the store that its ranks already share
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


# --- NCCL: to let devices meet, and to part those that wait for one that is gone ----------------------


def connects_gpus(group: dist.ProcessGroup | None) -> bool:
    """Whether the group reduces on the devices themselves; gloo takes their data to the host and waits there."""
    return "nccl" in dist.get_backend_config(group)


def device_barrier(group: dist.ProcessGroup | None, device: str) -> Callable[[], object]:
    """Give what lets the devices meet on the current stream; nothing waits for it on the host."""
    token = torch.zeros(1, device=device)

    def meet() -> None:
        dist.all_reduce(token, group=group)

    return meet


def own_limit_s(group: dist.ProcessGroup | None) -> float:
    """Say how long a device may wait for the others, so that torch's watchdog does not end the process first."""
    found = _backend(group if group is not None else dist.group.WORLD)
    timeout = getattr(getattr(found, "options", None), "_timeout", None)
    return math.inf if timeout is None else _SHARE_OF_OWN_LIMIT * timeout.total_seconds()


def part_devices() -> None:
    """Abort NCCL in all groups of this process: kernels that wait for another device end, and give no result.

    All groups, since a launch may use others than the one that connects the ranks. Each in a thread of its own,
    since one may have to wait for another on the same device.

    Raises:
        RuntimeError: one of them could not be aborted; the others were.
    """
    errors: list[Exception] = []

    def abort(backend: Any) -> None:
        try:
            backend.abort()
        except Exception as error:  # noqa: BLE001 - raised below, once the others are done
            errors.append(error)

    # torch has no public list of its groups
    groups = list(dist.distributed_c10d._world.pg_map)
    threads = [
        threading.Thread(target=abort, args=(backend,), daemon=True)
        for backend in map(_backend, groups)
        if backend is not None
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _backend(group: Any) -> Any:
    """Give the group's NCCL; ``None`` where it has none."""
    try:
        found = group._get_backend(torch.device("cuda"))
    except RuntimeError:
        return None
    return found if found.name() == "nccl" else None
