"""The OpenMP runtime is found where a package or the system has one, and named with the fix where not."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator
from importlib import metadata

import pytest

from torchsched import openmp


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    openmp.find_openmp.cache_clear()
    yield
    openmp.find_openmp.cache_clear()  # other tests must not find what was made up here


def test_the_installed_runtime_is_one_that_llvm_can_call() -> None:
    found = openmp.find_openmp()
    if not found:
        pytest.skip(found.detail)
    library = ctypes.CDLL(found.detail)
    assert library.__kmpc_fork_call


def test_without_a_package_the_systems_own_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(openmp.metadata, "distribution", nothing)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: "libomp.so.5" if name == "omp5" else None)
    assert openmp.find_openmp().detail == "libomp.so.5"


def test_where_there_is_none_the_fix_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openmp, "_in_distribution", lambda name, names: None)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    found = openmp.find_openmp()
    assert not found
    assert "pip install 'kernelmark[mlir]'" in found.detail
