"""What ranks need of NCCL: to let their devices meet, and to part devices that wait for one that is gone.

It knows torch's process groups, and no benchmark.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

__all__ = ["connects_gpus", "device_barrier", "own_limit_s", "part_devices"]

_SHARE_OF_OWN_LIMIT = 0.8
"""How much of torch's own limit devices may wait: at its end torch kills the process, and what was measured with it."""


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
