"""A name opens the device that it asks for, or says which there are."""

from __future__ import annotations

import pytest
import torch

from kernelmark.device import AcceleratorDevice, CpuDevice, CudaDevice, open_device
from kernelmark.errors import UnavailableError, UsageError

NO_ACCELERATOR = not torch.accelerator.is_available()
without_accelerator = pytest.mark.skipif(not NO_ACCELERATOR, reason="this machine has an accelerator")


@pytest.mark.parametrize("name", ["cpu", "cpu:0", " CPU "])
def test_the_cpu_is_always_there(name: str) -> None:
    assert isinstance(open_device(name), CpuDevice)


@without_accelerator
@pytest.mark.parametrize("name", [None, "auto", ""])
def test_the_best_device_is_the_cpu_where_there_is_nothing_else(name: str | None) -> None:
    assert isinstance(open_device(name), CpuDevice)


@pytest.mark.parametrize("name", ["cuda:x", "cuda:-1", "cuda:", ":0", "cuda 0", "auto:1", "cpu:0:0", "1"])
def test_a_name_that_is_not_written_like_a_devices_is_a_mistake_of_use(name: str) -> None:
    with pytest.raises(UsageError, match="no device; write 'auto'"):
        open_device(name)


@pytest.mark.parametrize("name", ["gpu", "tpu:3", "cpu:1", "fake"])
def test_a_device_that_is_not_there_is_answered_with_those_that_are(name: str) -> None:
    with pytest.raises(UnavailableError, match=rf"no device '{name}' here; there is .*cpu"):
        open_device(name)


def test_a_cuda_device_that_is_not_there_says_why() -> None:
    with pytest.raises(
        UnavailableError, match=r"there is no cuda:9999.*(built without CUDA|driver|torch sees)"
    ):
        CudaDevice(9999)


def test_an_accelerator_that_is_not_there_says_what_is() -> None:
    with pytest.raises(UnavailableError, match="there is no xpu:9999; torch's accelerator here"):
        AcceleratorDevice("xpu", 9999)
