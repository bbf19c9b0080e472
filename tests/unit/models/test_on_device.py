"""A model on a device without MLIR: inductor is checked against eager. The CPU plays the device; inductor is real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.errors import UnavailableError, UsageError, VerificationError
from kernelmark.harness import Session, SessionOptions, Unavailable
from kernelmark.models import Baseline, Dump, ModelRequest, on_device
from kernelmark.models.on_device import exact_float32, moved, run_on_device
from kernelmark.records import Cache, Check, Role
from kernelmark.timing import Budget
from torchsched.ingress import load_model

File = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def session(*, timed: bool = False) -> Session:
    budget = Budget(min_count=4, max_count=4, blocks=2)
    return Session(
        SessionOptions(device="cpu", verify_only=not timed, cache=Cache.WARM, budget=budget, ceilings=False)
    )


def compiled_as(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Stands in for inductor: what eager gives, changed."""
    return lambda model, state: lambda *inputs: change(model(*inputs))


def needs_a_compiler(model: torch.nn.Module) -> None:
    found = on_device.compiled_by_inductor(model, on_device.State(model, (torch.rand(3),)))
    if isinstance(found, Unavailable):
        pytest.skip(f"needs a C++ compiler: {found.reason}")


def test_inductor_is_checked_and_timed_against_eager_and_mlir_says_why_it_is_not_there(
    model_file: File,
) -> None:
    needs_a_compiler(torch.nn.ReLU())
    told: list[str] = []
    request = ModelRequest(model_file("recurrent"), benchmark=True, baselines=tuple(Baseline))
    found = run_on_device(request, "cpu", session(timed=True), told.append)
    inductor, eager, mlir = found.comparison.rows
    assert (inductor.implementation, inductor.role, inductor.check) == ("inductor", Role.OURS, Check.VERIFIED)
    assert found.ours is inductor
    assert inductor.params["draws"] == "two draws"
    assert inductor.timing is not None
    assert eager.ratio is not None
    assert eager.backend == "torch eager"
    assert mlir.check is Check.UNAVAILABLE
    assert "MLIR makes code for the CPU only" in mlir.note
    assert told[0].startswith("mlir: unavailable: MLIR makes code for the CPU only")
    assert found.work is not None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda answer: answer * 1.01, "does not match the reference"),
        (lambda answer: answer.abs(), "right on the first draw of the inputs, and on a second one"),
    ],
)
def test_an_answer_of_inductor_s_that_is_wrong_is_told(
    model_file: File, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any], words: str
) -> None:
    monkeypatch.setattr(on_device, "compiled_by_inductor", compiled_as(change))
    kept = session()
    with pytest.raises(VerificationError, match=words):
        run_on_device(ModelRequest(model_file("product")), "cpu", kept, lambda line: None)
    assert kept.rows[0].check is Check.FAILED
    assert kept.rows[0].implementation == "inductor"


def test_an_answer_that_is_kept_from_the_first_call_is_found(
    model_file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[tuple[int, ...], Any] = {}

    def remembering(model: Any, state: Any) -> Callable[..., Any]:
        return lambda *inputs: kept.setdefault(tuple(inputs[0].shape), model(*inputs))

    monkeypatch.setattr(on_device, "compiled_by_inductor", remembering)
    with pytest.raises(VerificationError, match="does not match the reference"):
        run_on_device(ModelRequest(model_file("product")), "cpu", session(), lambda line: None)


def test_where_inductor_cannot_be_had_the_rows_say_so(
    model_file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_device, "compiled_by_inductor", lambda model, state: Unavailable("no compiler"))
    kept = session()
    with pytest.raises(UnavailableError, match="inductor on cpu: no compiler"):
        run_on_device(ModelRequest(model_file("product")), "cpu", kept, lambda line: None)
    assert {row.implementation: row.check for row in kept.rows} == {
        "inductor": Check.UNAVAILABLE,
        "mlir": Check.UNAVAILABLE,
    }


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"baselines": (Baseline.EAGER,)}, "--baselines eager with --device cuda:0.*leave it in"),
        ({"baselines": ()}, "--baselines none"),
        ({"dumps": (Dump.ASSEMBLY,)}, "--dump-assembly with --device cuda:0"),
    ],
)
def test_what_needs_code_of_ours_is_refused_before_the_file_is_read(
    given: dict[str, Any], words: str, tmp_path: Path
) -> None:
    request = ModelRequest(tmp_path / "none.py", **given)
    with pytest.raises(UsageError, match=words):
        run_on_device(request, "cuda:0", session(), lambda line: None)


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
    backends = torch.backends.cudnn, torch.backends.cuda.matmul
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
