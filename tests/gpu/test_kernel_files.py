"""Kernel files on a real device, in each language that runs there: verified, timed, and wrong ones found."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from kernelmark.errors import OutOfBoundsError, VerificationError
from kernelmark.kernelfile import Language, Request, benchmark
from kernelmark.records import Check

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).parents[2] / "examples" / "kernels"
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc, which is not installed")


def needs(module: str, distribution: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        importlib.util.find_spec(module) is None, reason=f"needs {distribution}, which is not installed"
    )


SQUARE = {"M": "256", "N": "512"}
PRODUCT = {**SQUARE, "K": "128"}


@pytest.mark.spec("K1")
@pytest.mark.parametrize(
    ("file", "language", "values"),
    [
        pytest.param("softmax/softmax.cu", Language.CUDA_CPP, SQUARE, marks=needs_nvcc),
        pytest.param("matmul/matmul.cu", Language.CUDA_CPP, PRODUCT, marks=needs_nvcc),
        pytest.param(
            "matmul_half/matmul_cutlass.cu",
            Language.CUTLASS,
            PRODUCT,
            marks=(needs_nvcc, needs("cutlass_library", "nvidia-cutlass")),
        ),
        pytest.param("softmax/softmax_triton.py", Language.TRITON, SQUARE, marks=needs("triton", "triton")),
        pytest.param("matmul/matmul_triton.py", Language.TRITON, PRODUCT, marks=needs("triton", "triton")),
        pytest.param(
            "softmax/softmax_cute.py",
            Language.CUTE_DSL,
            SQUARE,
            marks=needs("cutlass", "nvidia-cutlass-dsl"),
        ),
        pytest.param("softmax/softmax_torch.py", Language.TORCH, SQUARE),
    ],
)
def test_the_examples_are_verified_and_timed(
    file: str, language: Language, values: dict[str, str], tmp_path: Path
) -> None:
    """In a process of its own, and its answers are checked again in another."""
    path = EXAMPLES / file
    found = benchmark(
        Request(
            path,
            path.with_name("reference.py"),
            tmp_path,
            values=values,
            implementation=language.value,
            num_trials=20,
            device="auto" if language is not Language.TORCH else "cuda:0",
            compile=path.suffix == ".cu",
        )
    )
    assert found.outcome == "measured"
    assert [row.check for row in found.rows] == [Check.VERIFIED] * 2
    assert found.told["header"]["timing method"] == "cuda_event (device_events)"
    assert found.told["header"]["answers checked again"].startswith("yes")
    assert found.rows[0].timing is not None
    assert found.rows[0].timing.device_busy.samples == 20


SCALE = """
__global__ void scale(const float* x, float* out, int n) {{
    for (int i = threadIdx.x; i < {bound}; i += blockDim.x) out[i] = {factor} * x[i];
}}
extern "C" void solve(const float* x, float* out, int n) {{ scale<<<1, 128>>>(x, out, n); }}
"""


@needs_nvcc
@pytest.mark.parametrize(
    ("bound", "factor", "error"), [("n", "3", VerificationError), ("n + 1", "2", OutOfBoundsError)]
)
def test_wrong_kernels_are_found(bound: str, factor: str, error: type[Exception], tmp_path: Path) -> None:
    source, reference = tmp_path / "scale.cu", tmp_path / "reference.py"
    source.write_text(SCALE.format(bound=bound, factor=factor))
    reference.write_text("def reference(x, out, **kwargs):\n    return x * 2\n")
    with pytest.raises(error):
        benchmark(Request(source, reference, tmp_path / "out", values={"n": "1000"}, compile=True))
