"""Fixtures for the benchmarks: one for each implementation of another library."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.baselines import matmul, rms_norm, softmax
from benchmarks.baselines.torch_compile import compiled_reference


@pytest.fixture
def torch_compile(case: Any) -> Any:
    """The case's reference, compiled by torch."""
    return compiled_reference(case)


@pytest.fixture
def vllm_bmm() -> Any:
    return matmul.vllm_bmm()


@pytest.fixture
def sglang_bmm() -> Any:
    return matmul.sglang_bmm()


@pytest.fixture
def vllm_rms_norm(case: Any) -> Any:
    return rms_norm.vllm_rms_norm(case)


@pytest.fixture
def sglang_rms_norm(case: Any) -> Any:
    return rms_norm.sglang_rms_norm(case)


@pytest.fixture
def flashinfer_rms_norm(case: Any) -> Any:
    return rms_norm.flashinfer_rms_norm(case)


@pytest.fixture
def liger_rms_norm(case: Any) -> Any:
    return rms_norm.liger_rms_norm(case)


@pytest.fixture
def liger_softmax() -> Any:
    return softmax.liger_softmax()
