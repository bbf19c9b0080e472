"""A model goes through a schedule to the LLVM dialect, is right there, and a step that fails names its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.errors import ModelLoweringError, ScheduleError
from torchsched.bindings import available
from torchsched.descriptors import Schedule, find_schedule, load_schedule
from torchsched.elements import Element
from torchsched.execution import compile_lowered
from torchsched.ingress import Imported, import_model
from torchsched.lowering import RESULTS_STEP, Lowered, lower
from torchsched.openmp import find_openmp
from torchsched.packing import ALIGNMENT
from torchsched.targets import Target, detect

pytestmark = pytest.mark.skipif(not available(), reason=available().detail)
needs_openmp = pytest.mark.skipif(not find_openmp(), reason=find_openmp().detail)
SERIAL = detect(threads=1)


class Function(torch.nn.Module):
    """A module of one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def relu_of_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(a @ b)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape).uniform_(-1, 1, generator=torch.Generator().manual_seed(7)).to(dtype)


def imported(function: Callable[..., Any], *inputs: torch.Tensor) -> Imported:
    return import_model(Function(function).eval(), inputs)


def plain() -> Imported:
    return imported(relu_of_product, drawn(8, 8), drawn(8, 8))


def write(folder: Path, text: str, name: str = "s.yaml") -> Schedule:
    (folder / name).write_text(text)
    return load_schedule(folder / name, SERIAL)


def loops(target: Target = SERIAL) -> Schedule:
    return find_schedule("loops", Element.F32, target)


def _outputs(
    function: Callable[..., Any], inputs: tuple[torch.Tensor, ...], target: Target, name: str
) -> Any:
    model = imported(function, *inputs)
    schedule = find_schedule(name, Element.F32, target)
    with compile_lowered(lower(model, schedule, target)) as compiled:
        bound = compiled.bind(model.arguments(inputs))
        bound()
        return bound.outputs


# --- the schedules that every model may take ---------------------------------------------------------


def two_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.argmax(1), (x > 0)


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "matrix product": (relu_of_product, (drawn(70, 33), drawn(33, 41))),
    "large enough to split": (lambda x: torch.softmax(x * 2, 1), (drawn(301, 401),)),
    "scan": (lambda x: torch.cumsum(x * 2, 1).relu() + x, (drawn(37, 29),)),
    "product scan": (lambda x: torch.cumprod(x, 0), (drawn(9, 5),)),
    "sort": (lambda x: x.sort(1)[0] + 1, (drawn(7, 13),)),
    "indexed write": (lambda x: x.index_fill(0, torch.tensor([1, 3]), 2.0), (drawn(6, 4),)),
    "two results": (two_results, (drawn(12, 34),)),
    "padding and concatenation": (
        lambda x, y: torch.cat([torch.nn.functional.pad(x, (1, 2)), y], 0),
        (drawn(3, 4), drawn(2, 7)),
    ),
    "pooling": (lambda x: torch.nn.functional.max_pool2d(x, 2), (drawn(2, 3, 8, 8),)),
    "an argument back": (lambda x: (x, x), (drawn(4),)),
    "nothing in it": (lambda x: x + 1, (drawn(0, 4),)),
    "integers": (lambda x: x * 3 - 1, (torch.arange(-8, 8),)),
    "bf16": (lambda a, b: a @ b, (drawn(20, 30, dtype=torch.bfloat16), drawn(30, 10, dtype=torch.bfloat16))),
}


@pytest.mark.parametrize(
    ("name", "threads"),
    [
        ("loops", 1),
        pytest.param("loops", 3, marks=needs_openmp),
        pytest.param("default", 3, marks=needs_openmp),
    ],
)
@pytest.mark.parametrize("case", CASES)
def test_loops_and_default_are_right(case: str, threads: int, name: str) -> None:
    function, inputs = CASES[case]
    expected = function(*inputs)
    found = _outputs(function, inputs, detect(threads=threads), name)
    tolerance = 2e-2 if inputs[0].dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_what_was_lowered_takes_arguments_results_and_workspaces() -> None:
    inputs = (drawn(8, 8), drawn(8, 8))
    lowered = lower(imported(lambda a, b: (a @ b) @ b, *inputs), loops(), SERIAL)
    assert [each.type.shape for each in lowered.signature.results] == [(8, 8)]
    assert lowered.workspaces  # the product between the two is no result
    assert all(space.nbytes >= 8 * 8 * 4 for space in lowered.workspaces)
    text = str(lowered.module)
    assert "_mlir_ciface_main" in text
    assert not re.search(r"\b(linalg|memref|scf|arith|func)\.", text)


def test_results_and_workspaces_are_aligned() -> None:
    model = plain()
    with compile_lowered(lower(model, loops(), SERIAL)) as compiled:
        bound = compiled.bind(model.arguments((drawn(8, 8), drawn(8, 8))))
        assert all(each.data_ptr() % ALIGNMENT == 0 for each in bound.results)


@needs_openmp
def test_parallel_code_says_how_many_threads_it_uses_and_serial_code_one() -> None:
    two = detect(threads=2)
    large = imported(lambda x: x + 1, drawn(512, 512))
    assert lower(large, loops(two), two).threads == 2
    # nothing in it is worth a thread
    assert lower(plain(), loops(two), two).threads == 1
    assert lower(imported(lambda x: x + 1, drawn(512, 512)), loops(), SERIAL).threads == 1


def test_without_a_runtime_the_code_is_serial_and_right(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(SERIAL.name, SERIAL.features, threads=4, vector_bits=SERIAL.vector_bits, openmp=None)
    lowered = lower(imported(lambda x: x + 1, drawn(512, 512)), loops(target), target)
    assert lowered.threads == 1
    assert "omp" not in str(lowered.module)
    assert target.notes


# --- watching ------------------------------------------------------------------------------------------


@pytest.mark.spec("L11")
def test_an_observer_gets_every_step_by_its_name_with_the_module_as_it_is_then() -> None:
    seen: list[tuple[str, str]] = []
    schedule = loops()
    lowered = lower(plain(), schedule, SERIAL, observer=lambda name, module: seen.append((name, str(module))))
    names = [name for name, _ in seen]
    assert names[0] == RESULTS_STEP
    assert "memref<8x8xf32>" in seen[0][1]
    assert "linalg.matmul" in seen[0][1]
    expected = [
        step.name for step in schedule.steps if not any(each.subject == "tm_tensor" for each in step.when)
    ]
    assert [name for name in names[1:] if name in expected] == expected
    assert seen[-1] == (schedule.steps[-1].name, str(lowered.module))


def test_a_step_for_what_the_module_does_not_hold_is_not_taken() -> None:
    seen: list[str] = []
    lower(plain(), loops(), SERIAL, observer=lambda name, _: seen.append(name))
    assert not [name for name in seen if "tm-tensor" in name]
    seen.clear()
    scan = imported(lambda x: torch.cumsum(x, 0), drawn(4, 4))
    lower(scan, loops(), SERIAL, observer=lambda name, _: seen.append(name))
    assert "func.func(tm-tensor-to-loops)" in seen
    assert len([name for name in seen if name.startswith("one-shot-bufferize")]) == 1


# --- what fails ----------------------------------------------------------------------------------------


def test_an_unknown_pass_is_refused_before_anything_is_rewritten(tmp_path: Path) -> None:
    model = plain()
    before = str(model.module)
    schedule = write(tmp_path, "pipeline:\n  - pass: cse\n  - pass: canonicalise\n")
    with pytest.raises(ScheduleError, match=r"s\.yaml:3: .*MLIR has no pass 'canonicalise'"):
        lower(model, schedule, SERIAL)
    assert str(model.module) == before


def test_a_pass_that_fails_names_itself_its_line_and_the_operation(tmp_path: Path) -> None:
    schedule = write(
        tmp_path,
        "pipeline:\n"
        "  - pass: one-shot-bufferize{bufferize-function-boundaries"
        " function-boundary-type-conversion=identity-layout-map}\n",
    )
    scan = imported(lambda x: torch.cumsum(x, 0), drawn(4, 4))
    with pytest.raises(ModelLoweringError) as raised:
        lower(scan, schedule, SERIAL)
    error = raised.value
    assert error.stage == "lower"
    assert "pass 'one-shot-bufferize{" in str(error)
    assert f"({tmp_path}/s.yaml:2) failed" in str(error)
    assert error.op == "tm_tensor.scan"
    assert "it was made for: aten.cumsum" in str(error)


def test_a_step_of_an_included_file_says_how_it_came_there(tmp_path: Path) -> None:
    write(tmp_path, "pipeline:\n  - transform: torchsched.aliasing:say_apart\n", "inner.yaml")
    schedule = write(tmp_path, "pipeline:\n  - pass: cse\n  - include: inner.yaml\n")
    with pytest.raises(ModelLoweringError) as raised:
        lower(plain(), schedule, SERIAL)
    text = str(raised.value)
    assert "inner.yaml:2" in text
    assert f"included from {tmp_path}/s.yaml:3" in text
    assert "has no llvm.func 'main'" in text
    assert text.count("lower:") == 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("def f(module, *, target):\n    raise IndexError('no loop 3')\n", "raised IndexError\nno loop 3"),
        (
            "from torchsched.interpreter import apply_sequence, sequence\n"
            "def f(module, *, target):\n    apply_sequence(module, sequence('transform.nothing'))\n",
            "stopped (line 3 of the text)",
        ),
    ],
)
def test_a_transform_that_raises_names_its_line(tmp_path: Path, function: str, message: str) -> None:
    (tmp_path / "t.py").write_text(function)
    schedule = write(tmp_path, "pipeline:\n  - transform: t.py:f\n")
    with pytest.raises(ModelLoweringError) as raised:
        lower(plain(), schedule, SERIAL)
    assert f"({tmp_path}/s.yaml:2) {message}" in str(raised.value)
    assert raised.value.__cause__ is not None


def test_a_transform_that_leaves_nonsense_is_blamed_and_not_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(
        "def f(module, *, target):\n"
        "    block = module.body.operations[0].regions[0].blocks[0]\n"
        "    block.operations[len(block.operations) - 1].operation.erase()\n"
    )
    schedule = write(tmp_path, "pipeline:\n  - transform: t.py:f\n  - pass: cse\n")
    with pytest.raises(ModelLoweringError) as raised:
        lower(plain(), schedule, SERIAL)
    assert f"({tmp_path}/s.yaml:2) left a module that is not valid" in str(raised.value)


def test_transform_text_beside_the_schedule_is_filled_in_and_applied(tmp_path: Path) -> None:
    (tmp_path / "tile.mlir").write_text(
        "module attributes {transform.with_named_sequence} {\n"
        "transform.named_sequence @__transform_main(%root: !transform.any_op) {\n"
        '%op = transform.structured.match ops{["linalg.matmul"]} in %root'
        " : (!transform.any_op) -> !transform.any_op\n"
        "%t, %l = transform.structured.tile_using_for %op tile_sizes [${rows}]"
        " : (!transform.any_op) -> (!transform.any_op, !transform.any_op)\n"
        "transform.yield\n}\n}\n"
    )
    schedule = write(
        tmp_path,
        "parameters:\n  rows: {default: 4}\npipeline:\n  - transform: tile.mlir\n"
        "  - pass: linalg-fuse-elementwise-ops\n",
    )
    seen: dict[str, str] = {}
    with pytest.raises(ModelLoweringError, match="still holds"):
        lower(plain(), schedule, SERIAL, observer=lambda name, module: seen.update({name: str(module)}))
    assert "tensor<4x8xf32>" in seen["tile.mlir(rows=4)"]


def test_what_is_wrong_in_transform_text_has_the_line_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "tile.mlir").write_text("module {\n\n  transform.nothing\n}\n")
    schedule = write(tmp_path, "pipeline:\n  - transform: tile.mlir\n")
    with pytest.raises(ModelLoweringError) as raised:
        lower(plain(), schedule, SERIAL)
    assert f"{tmp_path}/tile.mlir:3: transform file 'tile.mlir' ({tmp_path}/s.yaml:2)" in str(raised.value)


def test_a_schedule_that_ends_too_early_says_what_is_left(tmp_path: Path) -> None:
    schedule = write(tmp_path, "pipeline:\n  - pass: cse\n")
    with pytest.raises(ModelLoweringError) as raised:
        lower(plain(), schedule, SERIAL)
    assert "after the last step of s the module still holds" in str(raised.value)
    assert "linalg.fill" in str(raised.value)
    assert "- include: ../lower.yaml" in str(raised.value)


def test_lowered_is_what_the_engine_takes() -> None:
    assert set(Lowered.__slots__) == {"context", "module", "signature", "threads", "workspaces", "in_place"}
