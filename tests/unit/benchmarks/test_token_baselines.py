"""The adapters to other libraries' token ops.

The libraries need a CUDA device. Where a stand-in takes a library function's place, it has the parameters that
the library documents and computes in torch what the library says it does: the adapter is what is tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from benchmarks.baselines import activation, attention, int8_quant, moe, rms_norm_bwd, selection
from kernelmark import Case, Implementation, Unavailable
from kernelmark.harness import Session, SessionOptions, use_session
from kernelmark.verify import check_outputs
from workloads.activation import SiluInplaceWorkload
from workloads.attention import AttentionFwdWorkload
from workloads.moe import MoeCombineWorkload
from workloads.quant import Int8QuantWorkload
from workloads.selection import TopKWorkload

BF16 = torch.bfloat16


@pytest.fixture(autouse=True)
def session() -> Iterator[Session]:
    with use_session(Session(SessionOptions(device="cpu", verify_only=True))) as current:
        yield current


def _case(workload: Any) -> Case:
    return Case(type(workload).__name__, lambda: workload)


def _passes(case: Case, adapted: Any) -> bool:
    assert isinstance(adapted, Implementation)
    if adapted.reset is not None:
        adapted.reset()
    got = adapted.run(*(case.inputs if adapted.args is None else adapted.args))
    assert all(any(out is owned for out in (got,)) for owned in adapted.owned_outputs)
    return check_outputs(got, case.reference(*case.inputs), case.verification).passed


def _instead_of(monkeypatch: pytest.MonkeyPatch, module: Any, function: Callable[..., Any]) -> None:
    monkeypatch.setattr(module, "load", lambda *_args, **_named: function)


@pytest.mark.spec("T14")
@pytest.mark.parametrize(
    "adapt",
    [
        lambda case: rms_norm_bwd.liger_rms_norm_bwd(case),
        lambda case: moe.vllm_moe_combine(case),
        lambda _: int8_quant.vllm_int8_quant(),
        lambda _: int8_quant.sglang_int8_quant(),
        lambda case: selection.flashinfer_topk(case),
        lambda case: attention.flashinfer_attention(case),
        lambda case: attention.vllm_attention(case),
        lambda case: attention.sglang_attention(case),
    ],
)
def test_on_a_cpu_a_library_for_gpus_is_unavailable_with_the_reason(adapt: Callable[[Case], Any]) -> None:
    found = adapt(_case(TopKWorkload(2, 16, 2, BF16)))
    assert isinstance(found, Unavailable)
    assert "CUDA" in found.reason


@pytest.mark.spec("T16")
def test_torchs_in_place_silu_works_on_a_private_argument() -> None:
    case = _case(SiluInplaceWorkload((3, 40), torch.float32))
    before = case.inputs[0].clone()
    adapted = activation.torch_silu_inplace(case)
    assert _passes(case, adapted)
    assert _passes(case, adapted), "reset restores the argument"
    assert torch.equal(case.inputs[0], before)


@pytest.mark.parametrize("has_shared", [False, True])
def test_vllms_unpermute_is_given_the_rows_and_the_scaled_weights(
    has_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moe_unpermute(
        out, permuted_hidden_states, topk_weights, inv_permuted_idx, expert_first_token_offset=None
    ) -> None:
        assert expert_first_token_offset is None
        assert inv_permuted_idx.dim() == 1
        rows = permuted_hidden_states[inv_permuted_idx.long()].view(*topk_weights.shape, -1)
        out.copy_((rows.float() * topk_weights[..., None]).sum(1))

    _instead_of(monkeypatch, moe, moe_unpermute)
    case = _case(MoeCombineWorkload(9, 3, 40, BF16, 2.5, has_shared))
    assert _passes(case, moe.vllm_moe_combine(case))


def _quantise(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scales = x.float().abs().amax(-1, keepdim=True) / 127
    return (x.float() / scales).round().to(torch.int8), scales


def test_the_zero_point_that_vllms_quantiser_returns_too_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled_int8_quant(input, scale=None, azp=None, symmetric=True):  # noqa: A002 - vLLM's own name
        assert (scale, azp, symmetric) == (None, None, True)
        return [*_quantise(input), None]

    _instead_of(monkeypatch, int8_quant, scaled_int8_quant)
    case = _case(Int8QuantWorkload(8, 256, BF16, 1e-10))
    assert _passes(case, int8_quant.vllm_int8_quant())


def test_sglangs_quantiser_is_called_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def per_token_quant_int8(x, scale_dtype=torch.float32, cal_sum=False):
        assert (scale_dtype, cal_sum) == (torch.float32, False)
        return _quantise(x)

    _instead_of(monkeypatch, int8_quant, per_token_quant_int8)
    case = _case(Int8QuantWorkload(8, 256, BF16, 1e-10))
    assert _passes(case, int8_quant.sglang_int8_quant())


def test_flashinfers_selection_is_asked_to_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    def top_k(input, k, sorted=False):  # noqa: A002 - FlashInfer's own names
        values, indices = torch.topk(input, k)
        return [values, indices] if sorted else [values.flip(-1), indices.flip(-1)]

    _instead_of(monkeypatch, selection, top_k)
    case = _case(TopKWorkload(6, 128, 8, BF16))
    assert _passes(case, selection.flashinfer_topk(case))


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, ...]:
    """Attend within one sequence of ``(length, heads, dim)``; the mask ends where both lengths end."""
    mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q)) if causal else None
    heads_first = (t.transpose(0, 1)[None] for t in (q, k, v))
    out = F.scaled_dot_product_attention(*heads_first, attn_mask=mask, enable_gqa=True)
    return out[0].transpose(0, 1), torch.zeros(len(q), q.shape[1])


SHAPES = {
    "square, causal": ((1, 33, 4, 16), (1, 33, 2, 16), True),
    "longer keys, causal": ((1, 20, 4, 16), (1, 33, 2, 16), True),
    "not causal": ((1, 20, 4, 16), (1, 33, 4, 16), False),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", [1, 2])
def test_torchs_fused_attention_sees_the_same_keys(shape: str, batch: int) -> None:
    q_shape, kv_shape, causal = SHAPES[shape]
    workload = AttentionFwdWorkload((batch, *q_shape[1:]), (batch, *kv_shape[1:]), torch.float32, causal)
    case = _case(workload)
    assert _passes(case, attention.torch_sdpa(case))


@pytest.mark.parametrize("shape", SHAPES)
def test_flashinfers_prefill_gets_one_sequence(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def single_prefill_with_kv_cache(q, k, v, causal=False, return_lse=False):
        out, lse = _attend(q, k, v, causal)
        return (out, lse) if return_lse else out

    _instead_of(monkeypatch, attention, single_prefill_with_kv_cache)
    q_shape, kv_shape, causal = SHAPES[shape]
    case = _case(AttentionFwdWorkload(q_shape, kv_shape, BF16, causal))
    assert _passes(case, attention.flashinfer_attention(case))
    two = _case(AttentionFwdWorkload((2, *q_shape[1:]), (2, *kv_shape[1:]), BF16, causal))
    assert attention.flashinfer_attention(two).reason.endswith("takes one sequence, not 2")


@pytest.mark.parametrize("adapt", [attention.vllm_attention, attention.sglang_attention])
@pytest.mark.parametrize("shape", SHAPES)
def test_flash_attention_gets_the_sequences_end_to_end(
    shape: str, adapt: Callable[[Case], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def flash_attn_varlen_func(
        q,
        k,
        v,
        max_seqlen_q,
        cu_seqlens_q,
        max_seqlen_k,
        cu_seqlens_k=None,
        softmax_scale=None,
        causal=False,
        return_softmax_lse=False,
    ):
        assert softmax_scale in (None, 1 / math.sqrt(q.shape[-1]))
        assert cu_seqlens_q.dtype == cu_seqlens_k.dtype == torch.int32
        outs = []
        for index in range(len(cu_seqlens_q) - 1):
            mine, theirs = (slice(*c[index : index + 2].tolist()) for c in (cu_seqlens_q, cu_seqlens_k))
            assert (mine.stop - mine.start, theirs.stop - theirs.start) == (max_seqlen_q, max_seqlen_k)
            outs.append(_attend(q[mine], k[theirs], v[theirs], causal)[0])
        out, lse = torch.cat(outs), torch.zeros(q.shape[1], len(q))
        return (out, lse) if return_softmax_lse else out

    _instead_of(monkeypatch, attention, flash_attn_varlen_func)
    q_shape, kv_shape, causal = SHAPES[shape]
    case = _case(AttentionFwdWorkload((2, *q_shape[1:]), (2, *kv_shape[1:]), BF16, causal))
    assert _passes(case, adapt(case))


@pytest.mark.parametrize(
    "adapt", [attention.flashinfer_attention, attention.vllm_attention, attention.sglang_attention]
)
def test_kernels_for_sixteen_bits_say_so_for_float32(
    adapt: Callable[[Case], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _instead_of(monkeypatch, attention, _attend)
    case = _case(AttentionFwdWorkload((1, 4, 2, 16), (1, 4, 2, 16), torch.float32, True))
    assert adapt(case).reason.endswith("is for float16 and bfloat16, not torch.float32")
