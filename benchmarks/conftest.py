"""Fixtures for the benchmarks: one for each implementation of another library."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.baselines import (
    activation,
    attention,
    int8_quant,
    matmul,
    moe,
    rms_norm,
    rms_norm_bwd,
    selection,
    softmax,
)
from benchmarks.baselines.torch_compile import compiled_reference


def pytest_configure(config: pytest.Config) -> None:
    """Show warnings instead of raising them, as the tests do: another library's must not cost a reading."""
    config.addinivalue_line("filterwarnings", "default")


@pytest.fixture
def torch_compile(case: Any) -> Any:
    """The case's reference, compiled by torch."""
    return compiled_reference(case)


@pytest.fixture
def vllm_gemm(case: Any) -> Any:
    return matmul.vllm_gemm(case)


@pytest.fixture
def sglang_gemm(case: Any) -> Any:
    return matmul.sglang_gemm(case)


@pytest.fixture
def vllm_bmm(case: Any) -> Any:
    return matmul.vllm_bmm(case)


@pytest.fixture
def sglang_bmm(case: Any) -> Any:
    return matmul.sglang_bmm(case)


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
def liger_softmax(case: Any) -> Any:
    return softmax.liger_softmax(case)


@pytest.fixture
def torch_silu_inplace(case: Any) -> Any:
    return activation.torch_silu_inplace(case)


@pytest.fixture
def liger_rms_norm_bwd(case: Any) -> Any:
    return rms_norm_bwd.liger_rms_norm_bwd(case)


@pytest.fixture
def vllm_moe_combine(case: Any) -> Any:
    return moe.vllm_moe_combine(case)


@pytest.fixture
def vllm_int8_quant() -> Any:
    return int8_quant.vllm_int8_quant()


@pytest.fixture
def sglang_int8_quant() -> Any:
    return int8_quant.sglang_int8_quant()


@pytest.fixture
def flashinfer_topk(case: Any) -> Any:
    return selection.flashinfer_topk(case)


@pytest.fixture
def torch_sdpa(case: Any) -> Any:
    return attention.torch_sdpa(case)


@pytest.fixture
def flashinfer_attention(case: Any) -> Any:
    return attention.flashinfer_attention(case)


@pytest.fixture
def vllm_attention(case: Any) -> Any:
    return attention.vllm_attention(case)


@pytest.fixture
def sglang_attention(case: Any) -> Any:
    return attention.sglang_attention(case)
