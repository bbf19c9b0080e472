"""What is asked of torch's NCCL groups, on stand-ins: a build for CPUs has none. ``tests/gpu`` asks real ones."""

from __future__ import annotations

import math
import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from kernelmark.launches import torch_ranks as nccl


class Group:
    """A process group whose backend for CUDA is ``name``."""

    def __init__(self, name: str, abort=lambda: None, timeout_s: float | None = None) -> None:
        options = None if timeout_s is None else SimpleNamespace(_timeout=timedelta(seconds=timeout_s))
        self.backend = SimpleNamespace(name=lambda: name, abort=abort, options=options)

    def _get_backend(self, device):
        assert device.type == "cuda"
        if not self.backend.name():
            raise RuntimeError("No backend type associated with device type cuda")
        return self.backend


def in_torch(monkeypatch: pytest.MonkeyPatch, *groups: Group) -> None:
    monkeypatch.setattr(
        dist.distributed_c10d, "_world", SimpleNamespace(pg_map=dict.fromkeys(groups)), raising=True
    )


def test_all_groups_are_aborted_at_once_since_one_may_wait_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = threading.Barrier(2)
    in_torch(
        monkeypatch,
        Group("nccl", lambda: both.wait(20)),
        Group("gloo", lambda: 1 / 0),
        Group(""),
        Group("nccl", lambda: both.wait(20)),
    )
    nccl.part_devices()
    assert not both.broken


def test_one_that_cannot_be_aborted_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    aborted = []

    def fails() -> None:
        raise RuntimeError("busy")

    in_torch(monkeypatch, Group("nccl", fails), Group("nccl", lambda: aborted.append(1)))
    with pytest.raises(RuntimeError, match="busy"):
        nccl.part_devices()
    assert aborted == [1]


@pytest.mark.parametrize(
    ("group", "limit_s"),
    [
        (Group("nccl", timeout_s=600), 480),
        (Group("nccl"), math.inf),
        (Group("gloo", timeout_s=600), math.inf),
        (Group(""), math.inf),
    ],
)
def test_devices_wait_for_less_than_torch_waits_before_it_kills_the_process(group, limit_s: float) -> None:
    assert nccl.own_limit_s(group) == pytest.approx(limit_s)
