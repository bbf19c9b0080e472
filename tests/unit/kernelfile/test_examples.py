"""The examples are right: C++ and torch run, Triton runs in its interpreter, CUDA compiles where its compilers are."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmark.kernelfile import Request, benchmark, starting
from kernelmark.kernelfile.building import find_library
from kernelmark.kernelfile.request import LANGUAGES, Language

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "kernels"
VALUES = {
    "softmax": {"M": "7", "N": "40"},
    "matmul": {"M": "20", "N": "17", "K": "33"},
    "matmul_half": {"M": "40", "N": "24", "K": "72"},
    "rms_norm": {"M": "5", "N": "40", "eps": "1e-6"},
    "rms_norm_bf16": {"M": "5", "N": "40", "eps": "1e-6"},
}
LANGUAGE_OF = {
    "_torch.py": Language.TORCH,
    "_triton.py": Language.TRITON,
    "_cute.py": Language.CUTE_DSL,
    "_cutlass.cu": Language.CUTLASS,
    ".cu": Language.CUDA_CPP,
    ".cpp": Language.CPP,
}
"""How a file's name ends → its language; the first that fits."""


def solutions(*languages: Language):
    files = [path for path in sorted(EXAMPLES.glob("*/*.*")) if path.name != "reference.py"]
    chosen = [path for path in files if language_of(path) in languages]
    assert chosen
    return pytest.mark.parametrize("path", chosen, ids=lambda path: f"{path.parent.name}/{path.name}")


def language_of(path: Path) -> Language | None:
    return next((each for end, each in LANGUAGE_OF.items() if path.name.endswith(end)), None)


def request_for(path: Path, out: Path, **options) -> Request:
    values = dict(VALUES[path.parent.name])
    quick = {"num_trials": 4, "num_warmup": 0, "cache": "warm", "isolation": False}
    given = {**quick, "implementation": language_of(path), **options}
    return Request(path, path.with_name("reference.py"), out, values=values, **given)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_each_problem_is_there_in_each_language_that_fits_it() -> None:
    found: dict[str, set[Language | None]] = {}
    for path in EXAMPLES.glob("*/*.*"):
        if path.name != "reference.py":
            found.setdefault(path.parent.name.removesuffix("_bf16").removesuffix("_half"), set()).add(
                language_of(path)
            )
    everywhere = set(Language) - {Language.CUTLASS}
    # CUTLASS is a library of matrix products
    assert found == {"softmax": everywhere, "matmul": set(Language), "rms_norm": everywhere}


@pytest.mark.parametrize(
    ("example", "template"),
    [
        (path, template)
        for template in sorted(Path(starting.__file__).parent.joinpath("templates").iterdir())
        for path in [
            EXAMPLES
            / ("matmul_half" if template.name.startswith("matmul") else "softmax")
            / template.name.removesuffix(".txt").replace("softmax_ref", "ref").replace("matmul_ref", "ref")
        ]
    ],
    ids=lambda path: path.name,
)
def test_what_init_writes_is_the_example(example: Path, template: Path) -> None:
    assert example.read_bytes() == template.read_bytes()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which is not installed")
@solutions(Language.CPP)
def test_the_c_plus_plus_examples_are_verified_and_measured(path: Path, tmp_path: Path) -> None:
    assert benchmark(request_for(path, tmp_path / "out", compile=True)).outcome == "measured"


@solutions(Language.TORCH)
def test_the_torch_examples_are_verified_and_measured(path: Path, tmp_path: Path) -> None:
    assert benchmark(request_for(path, tmp_path / "out", device="cpu")).outcome == "measured"


@pytest.mark.slow
@solutions(Language.TRITON)
def test_the_triton_examples_are_verified_in_the_interpreter(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="needs triton, which is not installed")
    found = benchmark(request_for(path, tmp_path / "out", device="cpu", isolation=True))
    assert found.outcome == "verified"
    assert "verified only, not timed" in (tmp_path / "out" / "benchmark.md").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc, which is not installed")
@solutions(Language.CUDA_CPP)
def test_the_cuda_examples_compile(path: Path, tmp_path: Path) -> None:
    assert (
        find_library(request_for(path, tmp_path / "out", compile=True, arch="sm_90")).path.stat().st_size > 0
    )


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc, which is not installed")
@pytest.mark.skipif(
    importlib.util.find_spec("cutlass_library") is None, reason="needs nvidia-cutlass, which is not installed"
)
@solutions(Language.CUTLASS)
def test_the_cutlass_example_compiles_with_the_installed_package_s_headers(
    path: Path, tmp_path: Path
) -> None:
    library = find_library(request_for(path, tmp_path / "out", compile=True, arch="sm_90a")).path
    # the kernel's name holds Hopper's own matrix instruction, which sums products of halves up in 32 bits
    assert b"MMA_64x256x16_F32F16F16" in library.read_bytes()


@solutions(Language.CUDA_CPP, Language.CUTLASS)
def test_the_signatures_of_the_cuda_examples_fit_their_references(path: Path, tmp_path: Path) -> None:
    from kernelmark.kernelfile.request import Job
    from kernelmark.kernelfile.signature import signature_of
    from kernelmark.kernelfile.solutions import prepare

    asked = request_for(path, tmp_path / "out")
    prepared = prepare(Job(tmp_path, asked, tmp_path / "none.so"), "cpu")
    assert not prepared.inferred
    assert prepared.facts["buffers from"] == "shapes() of the reference"
    data = prepared.solution.data(0)
    answer = prepared.reference.answer({**prepared.extra, **data.kwargs}, data.outputs)
    for name, value in answer.items():
        assert (value.shape, value.dtype) == (data.kwargs[name].shape, data.kwargs[name].dtype)
    assert {each.name for each in signature_of(asked).outputs} == set(answer)


COMPILE = """
import sys
from pathlib import Path
from kernelmark.harness.loading import load_module

class Compiled(Exception):
    pass

def stop(*arguments):
    compile_(*arguments)
    raise Compiled

module = load_module(Path(sys.argv[1]))
compile_, module.cute.compile = module.cute.compile, stop
try:
    sizes = {name: int(size) for name, size in (each.split("=") for each in sys.argv[2:])}
    module.run_kernel(**module.setup(**sizes)["inputs"])
except Compiled:
    print("compiled")
"""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None, reason="needs nvidia-cutlass-dsl, which is not installed"
)
@solutions(Language.CUTE_DSL)
def test_the_cute_dsl_examples_compile_without_a_device(path: Path, tmp_path: Path) -> None:
    dumps = {"CUTE_DSL_ARCH": "sm_90a", "CUTE_DSL_KEEP_PTX": "1", "CUTE_DSL_DUMP_DIR": str(tmp_path)}
    command = [sys.executable, "-c", COMPILE, str(path), "M=256", "N=512"]
    command += ["K=64"] if "matmul" in path.name else []
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **dumps})
    assert done.stdout.strip().endswith("compiled"), done.stderr
    (code,) = tmp_path.glob("*.ptx")
    text = code.read_text()
    assert ".target sm_90a" in text
    # 16 bytes at once, and in the product the tensor cores' own instruction
    assert ("mma.sync" if "matmul" in path.name else "ld.global.v4.b32") in text


def test_every_language_has_an_example() -> None:
    assert set(LANGUAGES) == {language_of(path) for path in EXAMPLES.glob("*/*.*")} - {None}
