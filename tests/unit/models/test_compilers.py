"""A model is checked against PyTorch whichever compiler made its code; inductor is real, others are made here."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.errors import OutOfMemoryError, UnavailableError, UsageError, VerificationError
from kernelmark.harness import Unavailable
from kernelmark.models import Dump, Mode, ModelRequest, Show, request, run_model
from kernelmark.models.case import Subject, moved, told_of_memory
from kernelmark.models.compilers import compile_with, exact_float32
from kernelmark.models.state import State
from kernelmark.records import Cache, Check, Role, read_run
from torchsched.ingress import load_model

File = Callable[[str], Path]

remembered: dict[tuple[int, ...], Any] = {}


def off_by_a_bit(model: Any, inputs: Any) -> Callable[..., Any]:
    return lambda *inputs: model(*inputs) * 1.01


def right_where_nothing_is_negative(model: Any, inputs: Any) -> Callable[..., Any]:
    return lambda *inputs: model(*inputs).abs()


def remembering(model: Any, inputs: Any) -> Callable[..., Any]:
    return lambda *inputs: remembered.setdefault(tuple(inputs[0].shape), model(*inputs))


def unable(model: Any, inputs: Any) -> Callable[..., Any]:
    raise RuntimeError("no compiler")


def greedy(model: Any, inputs: Any) -> Callable[..., Any]:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    remembered.clear()


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the functions of this file be compilers that are installed."""
    made = (off_by_a_bit, right_where_nothing_is_negative, remembering, unable, greedy)
    found = [
        EntryPoint(each.__name__, f"{__name__}:{each.__name__}", "kernelmark.model_compilers")
        for each in made
    ]
    monkeypatch.setattr(request, "entry_points", lambda *, group: found)


def test_inductor_is_checked_and_timed_against_eager(model_file: File) -> None:
    path = model_file("recurrent")
    inputs = (torch.rand(3),)
    model = load_model(path).model
    built = compile_with("inductor", Subject(ModelRequest(path), model, State(model, inputs)))
    if isinstance(built, Unavailable):
        pytest.skip(f"needs a C++ compiler: {built.reason}")
    asked = ModelRequest(path, compiler="inductor", benchmark=True, iterations=4, cache=Cache.WARM)
    found = run_model(asked)
    inductor, eager = found.comparison.rows
    assert (inductor.implementation, inductor.role, inductor.check) == ("inductor", Role.OURS, Check.VERIFIED)
    assert found.ours is inductor
    assert inductor.params["draws"] == "two draws"
    assert inductor.timing is not None
    assert eager.ratio is not None
    assert eager.backend == "torch eager"
    assert found.work is not None


@pytest.mark.parametrize(
    ("compiler", "words"),
    [
        (off_by_a_bit, "does not match the reference"),
        (right_where_nothing_is_negative, "right on the first draw of the inputs, and on a second one"),
        (remembering, "does not match the reference"),
    ],
)
def test_an_answer_that_is_wrong_is_told(
    model_file: File, tmp_path: Path, compiler: Callable[..., Any], words: str
) -> None:
    name = compiler.__name__
    with pytest.raises(VerificationError, match=words):
        run_model(ModelRequest(model_file("product"), compiler=name, out=tmp_path / "run"))
    row = read_run(tmp_path / "run").rows[0]
    assert (row.implementation, row.check) == (name, Check.FAILED)


def test_where_a_compiler_cannot_be_had_the_row_says_so(model_file: File, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="unable on cpu: unable failed: RuntimeError: no compiler"):
        run_model(ModelRequest(model_file("product"), compiler="unable", out=tmp_path / "run"))
    assert [(row.implementation, row.check) for row in read_run(tmp_path / "run").rows] == [
        ("unable", Check.UNAVAILABLE)
    ]


def test_an_installed_compiler_is_a_baseline_too(model_file: File) -> None:
    asked = ModelRequest(
        model_file("product"),
        compiler="inductor",
        baselines=("eager", "unable"),
        benchmark=True,
        iterations=4,
        cache=Cache.WARM,
    )
    found = run_model(asked)
    assert [row.check for row in found.comparison.rows] == [
        Check.VERIFIED,
        Check.VERIFIED,
        Check.UNAVAILABLE,
    ]


def test_memory_that_runs_out_is_an_error_of_its_own(model_file: File) -> None:
    with pytest.raises(OutOfMemoryError, match=r"product: memory ran out .* smaller --input-shapes"):
        run_model(ModelRequest(model_file("product"), compiler="greedy"))
    with pytest.raises(OutOfMemoryError, match="memory ran out"), told_of_memory("m"):
        torch.empty(1 << 60)
    with pytest.raises(KeyError), told_of_memory("m"):
        raise KeyError("something else")


@pytest.mark.parametrize(
    "given",
    [
        {"mode": Mode.TORCH_COMPILE},
        {"pipeline": ("softmax",)},
        {"values": {"unroll": "2"}},
        {"roots": (Path("mine"),)},
        {"target": "x86_64"},
        {"feature": "avx2"},
        {"dumps": (Dump.ASSEMBLY,)},
        *({"shown": (each,)} for each in Show),
    ],
)
@pytest.mark.parametrize("how", [{"compiler": "inductor"}, {"device": "cuda:0"}])
def test_what_only_mlir_obeys_is_refused_elsewhere(given: dict[str, Any], how: dict[str, Any]) -> None:
    asked = ModelRequest(Path("none.py"), **given, **how)
    with pytest.raises(
        UsageError, match=r"^--[a-z-]+ with --(device cuda:0|compiler inductor): .*leave it out"
    ):
        asked.compiler_on(asked.resolve_device())


def test_threads_are_of_the_cpu() -> None:
    assert ModelRequest(Path("m.py"), compiler="inductor", threads=1).compiler_on("cpu") == "inductor"
    with pytest.raises(UsageError, match="--threads with --device cuda:0"):
        ModelRequest(Path("m.py"), threads=1).compiler_on("cuda:0")
    with pytest.raises(UsageError, match="--compiler mlir with --device cuda:0"):
        ModelRequest(Path("m.py"), compiler="mlir").compiler_on("cuda:0")


def test_a_compiler_that_there_is_none_of_is_told_with_those_there_are() -> None:
    with pytest.raises(UsageError, match="--compiler inductr: there is none; did you mean 'inductor'"):
        ModelRequest(Path("m.py"), compiler="inductr")


def test_a_device_that_is_not_there_is_told(model_file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnavailableError, match=r"there is no cuda:0: .*or use the device 'cpu'"):
        run_model(ModelRequest(model_file("product"), device="cuda"))
    with pytest.raises(UsageError, match="--device flux:0: torch has no such device"):
        run_model(ModelRequest(model_file("product"), device="flux"))


def test_everything_that_a_model_holds_is_moved(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = torch.nn.Linear(2, 2)\n"
        "        self.register_buffer('kept', torch.zeros(2))\n"
        "        self.plain = torch.zeros(2)\n"
        "        self.several = [torch.zeros(2), 3]\n"
        "        self.names = ['a']\n"
        "    def forward(self, x, n):\n"
        "        return self.linear(x)\n"
        "def get_inputs(): return [torch.rand(2), 3]\n"
        "def get_init_inputs(): return []\n"
    )
    found = moved(load_model(path), "meta")
    model: Any = found.model
    tensors = [model.linear.weight, model.kept, model.plain, model.several[0], found.inputs[0]]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert model.several[1] == found.inputs[1] == 3


def test_a_request_for_the_best_device_is_for_the_cpu_where_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert ModelRequest(Path("m.py"), device="auto").resolve_device() == "cpu"
    assert ModelRequest(Path("m.py"), device="cuda").resolve_device() == "cuda:0"
    with pytest.raises(UsageError, match="is no device"):
        ModelRequest(Path("m.py"), device="gpu!").resolve_device()


def test_products_in_float32_are_exact_for_the_time_of_a_run_and_as_they_were_afterwards() -> None:
    backends: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.cuda.matmul)
    before = [backend.allow_tf32 for backend in backends]
    try:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, False
        with exact_float32():
            assert [backend.allow_tf32 for backend in backends] == [False, False]
        assert [backend.allow_tf32 for backend in backends] == [True, False]
        with pytest.raises(KeyError), exact_float32():
            raise KeyError
        assert [backend.allow_tf32 for backend in backends] == [True, False]
    finally:
        for backend, allowed in zip(backends, before, strict=True):
            backend.allow_tf32 = allowed
