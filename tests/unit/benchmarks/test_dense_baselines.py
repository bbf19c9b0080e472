"""The adapters to other libraries' products, softmax and RMSNorm, and how a library is looked for.

The libraries need a CUDA device. Where a stand-in takes a library function's place, it has the parameters that
the library documents and computes in torch what the library says it does: the adapter is what is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.baselines import loading, matmul, rms_norm, softmax, torch_compile
from kernelmark import Case, Implementation, Unavailable
from kernelmark.harness import Session, SessionOptions, use_session
from kernelmark.verify import check_outputs
from tileops.ops.base import cxx_compiler
from workloads.gemm import BmmWorkload, GemmWorkload
from workloads.norm import RMSNormWorkload
from workloads.softmax import SoftmaxWorkload

BF16, F32 = torch.bfloat16, torch.float32


@pytest.fixture(autouse=True)
def session() -> Iterator[Session]:
    with use_session(Session(SessionOptions(device="cpu", verify_only=True))) as current:
        yield current


def _case(workload: Any) -> Case:
    return Case(type(workload).__name__, lambda: workload)


def _bmm(dtype: torch.dtype = BF16) -> Case:
    return _case(BmmWorkload(8, 12, 16, dtype, (3,)))


def _norm(dtype: torch.dtype = BF16) -> Case:
    # An eps that matters: as large as the mean of squares of the smallest rows.
    return _case(RMSNormWorkload(9, 40, dtype, 0.1))


def _passes(case: Case, adapted: Any) -> bool:
    assert isinstance(adapted, Implementation)
    got = adapted.run(*case.inputs)
    assert all(got is owned for owned in adapted.owned_outputs)
    return check_outputs(got, case.reference(*case.inputs), case.verification).passed


def _instead_of(monkeypatch: pytest.MonkeyPatch, module: Any, function: Any) -> None:
    monkeypatch.setattr(module, "load", lambda *_args, **_named: function)


def _normalise(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


@pytest.mark.spec("T14")
@pytest.mark.parametrize(
    "adapt",
    [
        matmul.vllm_gemm,
        matmul.sglang_gemm,
        matmul.vllm_bmm,
        matmul.sglang_bmm,
        rms_norm.vllm_rms_norm,
        rms_norm.sglang_rms_norm,
        rms_norm.flashinfer_rms_norm,
        rms_norm.liger_rms_norm,
        softmax.liger_softmax,
    ],
)
def test_on_a_cpu_a_library_for_gpus_is_unavailable_with_the_reason(adapt: Callable[[Case], Any]) -> None:
    found = adapt(_norm())
    assert isinstance(found, Unavailable)
    assert "need a CUDA device; this run is on cpu" in found.reason


@pytest.mark.parametrize("adapt", [matmul.vllm_gemm, matmul.sglang_gemm])
def test_batch_invariant_products_are_called_as_they_are(
    adapt: Callable[[Case], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def mm_batch_invariant(a, b):
        return torch.mm(a, b)

    _instead_of(monkeypatch, matmul, mm_batch_invariant)
    case = _case(GemmWorkload(8, 12, 16, BF16))
    assert _passes(case, adapt(case))


@pytest.mark.parametrize("adapt", [matmul.vllm_bmm, matmul.sglang_bmm])
def test_batch_invariant_batched_products_are_called_as_they_are(
    adapt: Callable[[Case], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bmm_batch_invariant(a, b, *, out=None):
        assert out is None
        return torch.bmm(a, b)

    _instead_of(monkeypatch, matmul, bmm_batch_invariant)
    case = _bmm()
    assert _passes(case, adapt(case))


@pytest.mark.parametrize(
    ("adapt", "name"),
    [
        (matmul.vllm_gemm, "vLLM"),
        (matmul.sglang_gemm, "SGLang"),
        (matmul.vllm_bmm, "vLLM"),
        (matmul.sglang_bmm, "SGLang"),
    ],
)
def test_a_product_in_tf32_is_not_offered_for_float32(
    adapt: Callable[[Case], Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _instead_of(monkeypatch, matmul, torch.matmul)
    found = adapt(_bmm(F32))
    assert isinstance(found, Unavailable)
    assert found.reason.startswith(f"{name}'s batch-invariant product multiplies float32 as TF32")


@pytest.mark.spec("T26")
def test_vllms_norm_writes_into_an_output_that_is_told_to_be_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def vllm_rms_norm(out, input, weight, epsilon) -> None:  # noqa: A002 - vLLM's own name
        out.copy_(_normalise(input, weight, epsilon))

    _instead_of(monkeypatch, rms_norm, vllm_rms_norm)
    case = _norm(F32)
    adapted = rms_norm.vllm_rms_norm(case)
    assert _passes(case, adapted)
    assert len(adapted.owned_outputs) == 1


@pytest.mark.parametrize("adapt", [rms_norm.sglang_rms_norm, rms_norm.flashinfer_rms_norm])
def test_norms_for_sixteen_bits_get_the_cases_eps_and_refuse_float32(
    adapt: Callable[[Case], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):  # noqa: A002 - the libraries' own name
        assert (out, enable_pdl) == (None, None)
        return _normalise(input, weight, eps)

    _instead_of(monkeypatch, rms_norm, rmsnorm)
    case = _norm()
    assert _passes(case, adapt(case))
    assert adapt(_norm(F32)).reason.endswith("is for float16 and bfloat16, not torch.float32")


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_ligers_norm_is_asked_to_round_once_and_to_keep_its_inputs(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LigerRMSNormFunction:
        @staticmethod
        def apply(X, W, eps, offset=0.0, casting_mode="llama", in_place=True, row_mode=None):  # noqa: N803
            assert (casting_mode, in_place, row_mode) == ("gemma", False, None)
            return _normalise(X, W + offset, eps)

    _instead_of(monkeypatch, rms_norm, LigerRMSNormFunction)
    case = _norm(dtype)
    assert _passes(case, rms_norm.liger_rms_norm(case))


def test_ligers_softmax_is_called_as_it_is_up_to_its_longest_row(monkeypatch: pytest.MonkeyPatch) -> None:
    class LigerSoftmaxFunction:
        @staticmethod
        def apply(input_):
            return torch.softmax(input_, -1)

    _instead_of(monkeypatch, softmax, LigerSoftmaxFunction)
    case = _case(SoftmaxWorkload(1, 65536, BF16))
    assert _passes(case, softmax.liger_softmax(case))
    longer = softmax.liger_softmax(_case(SoftmaxWorkload(1, 65537, BF16)))
    assert longer.reason.endswith("takes rows of up to 65536, not 65537")


# --- the reference, compiled ------------------------------------------------------------------------


@pytest.mark.skipif(cxx_compiler() is None, reason="inductor needs a C++ compiler; there is none here")
def test_each_cases_reference_is_compiled_by_itself() -> None:
    with torch._dynamo.config.patch(recompile_limit=1, fail_on_recompile_limit_hit=True):
        for columns in (33, 34, 35):
            case = _case(SoftmaxWorkload(4, columns, F32))
            adapted = torch_compile.compiled_reference(case)
            assert _passes(case, adapted)
            assert adapted.run is not case.reference, "it is checked as any other implementation"


@pytest.mark.spec("T14")
def test_without_a_compiler_the_compiled_reference_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compile, "cxx_compiler", lambda: None)
    found = torch_compile.compiled_reference(_bmm())
    assert isinstance(found, Unavailable)
    assert "C++ compiler" in found.reason


# --- looking for a library --------------------------------------------------------------------------


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules that can be imported, on what passes for a CUDA device."""
    monkeypatch.setattr(loading, "on_cuda", lambda _library: None)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _load(module: str, name: str) -> Any:
    return loading.load(module, name, install="some-package")


def test_a_function_of_an_installed_library_is_found(library: Path) -> None:
    (library / "a_whole_library.py").write_text("def kernel():\n    return 42\n")
    assert _load("a_whole_library", "kernel")() == 42


@pytest.mark.spec("T14")
def test_the_reason_says_what_is_missing_and_what_to_do(library: Path) -> None:
    (library / "an_old_library.py").write_text("")
    package = library / "an_older_library"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (library / "a_needy_library.py").write_text("import nothing_of_this_name\n")
    (library / "a_broken_library.py").write_text("raise ImportError('libcudart.so.12: not found\\nmore')\n")
    found = {
        name: _load(name, "kernel").reason
        for name in (
            "no_such_library",
            "an_old_library",
            "an_older_library.norm",
            "a_needy_library",
            "a_broken_library",
        )
    }
    assert found == {
        "no_such_library": "no_such_library is not installed (pip install some-package)",
        "an_old_library": "the installed an_old_library has no an_old_library.kernel",
        "an_older_library.norm": "the installed an_older_library has no an_older_library.norm",
        "a_needy_library": "nothing_of_this_name is not installed (pip install some-package)",
        "a_broken_library": "a_broken_library cannot be imported here: libcudart.so.12: not found",
    }


def test_what_else_goes_wrong_in_an_import_is_not_hidden(library: Path) -> None:
    (library / "a_faulty_library.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        _load("a_faulty_library", "kernel")
