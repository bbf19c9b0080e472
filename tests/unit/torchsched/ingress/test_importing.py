"""Models of every shape that import_model must take, run by plain loops and compared with PyTorch."""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernelmark.errors import ModelImportError, ModelRunError
from torchsched.elements import Element
from torchsched.ingress import exporting, import_model
from torchsched.signature import Role, TensorType

X = torch.linspace(-2, 2, 12).reshape(3, 4)
HELD = torch.tensor([1.0, -2.0, 3.0, 0.5])


class Of(nn.Module):
    """A model that is one function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


def _check(run, model: nn.Module, *inputs: Any, training: bool = False) -> Any:
    """Import, run, and compare with PyTorch: what is returned, and each thing that is written."""
    imported = import_model(model, inputs, training=training)
    ran = run(imported, copy.deepcopy(inputs))
    reference, given = copy.deepcopy(model).train(training), copy.deepcopy(inputs)
    with torch.no_grad():
        expected = reference(*given)
    torch.testing.assert_close(ran.output, expected, rtol=1e-5, atol=1e-5)
    state = {**dict(reference.named_parameters()), **dict(reference.named_buffers()), **vars(reference)}
    inputs_by_name = dict(zip([each.name for each in imported.signature.inputs], given, strict=False))
    for name, value in ran.written.items():
        torch.testing.assert_close(value, {**state, **inputs_by_name}[name].detach(), rtol=1e-5, atol=1e-5)
    return imported, ran


# --- what a model returns ------------------------------------------------------------------------------


@pytest.mark.spec("L3")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1,
        lambda x: (x + 1, x.sum()),
        lambda x: [x + 1],
        lambda x: {"a": x * 2, "rest": (x.sum(), None, 3, [x - 1])},
        lambda x: (x.argmax(1), x > 0, (x > 0).any(), x.max(dim=0).indices),
        lambda x: (x.to(torch.int32), x.to(torch.int8), x.double(), x.to(torch.uint8)),
        lambda x: (x, x),
        lambda x: (x * 2,) * 2,
        lambda x: (x, x.view(-1), x.t()),
        lambda x: x.t(),
        lambda x: None,
        lambda x: (x[:0], x[:0] @ x.t(), torch.cat([x[:0], x[:0]]), x[:0].sum(0)),
        lambda x: torch.full((2, 2), 7.0),
        lambda x: HELD,
    ],
    ids=[
        "one", "two", "list", "nested", "whole numbers and booleans", "other types", "an input twice",
        "one result twice", "views", "transposed", "nothing", "empty", "a constant", "a held tensor",
    ],
)  # fmt: skip
def test_results_come_back_in_the_models_own_structure(run, function: Callable[..., Any]) -> None:
    _check(run, Of(function), X.abs())


def test_results_are_named_by_their_place() -> None:
    model = Of(lambda x: {"a": x * 2, "rest": (x.sum(), None)})
    imported = import_model(model, [X])
    assert [each.name for each in imported.signature.results] == ["out['a']", "out['rest'][0]"]
    assert import_model(Of(lambda x: x + 1), [X]).signature.results[0].name == "out"


# --- what it takes -------------------------------------------------------------------------------------


@pytest.mark.spec("L3")
@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, y: F.cross_entropy(x, y), (X, torch.tensor([0, 3, 1]))),
        (lambda x, m: x.masked_fill(m, 9.0), (X, X > 0)),
        (lambda i: i * 2 + 1, (torch.arange(5, dtype=torch.int32),)),
        (lambda i: i // 2, (torch.arange(5, dtype=torch.uint8),)),
        (lambda x, i: x[i], (X, torch.tensor([2, 0]))),
        (lambda x: x * 2, (torch.tensor(3.0),)),
        (lambda x, k, flag: x * k if flag else x, (X, 2.5, True)),
        (lambda x, n: x, (X, None)),
        (lambda pair: pair[0] @ pair[1], ((X, X.t().contiguous()),)),
        (lambda d: d["a"] - d["b"], ({"a": X, "b": X * 2},)),
        (lambda x: x.sum(), (X[:0],)),
        (lambda x, y: x, (X, X * 2)),
        (lambda x: x @ x.t(), (X.double(),)),
        (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), (X.reshape(1, 3, 4),)),
    ],
    ids=[
        "classes", "mask", "i32", "u8", "indices", "no dimension", "numbers", "none", "tuple", "dict", "empty",
        "unused", "f64", "attention",
    ],
)  # fmt: skip
def test_inputs_of_every_kind_are_taken(run, function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    _check(run, Of(function), *inputs)


def test_one_tensor_handed_in_twice_is_two_arguments(run) -> None:
    imported = import_model(Of(lambda a, b: a - b), [X, X])
    ran = run(imported, [X, X * 3])
    torch.testing.assert_close(ran.output, X * -2)


def test_an_unused_input_stays_an_argument_and_an_unused_parameter_does_not() -> None:
    model = Of(lambda x, y: x + 1)
    model.unused = nn.Parameter(torch.ones(3))
    imported = import_model(model, [X, X])
    assert [each.role for each in imported.signature.arguments] == [Role.INPUT, Role.INPUT]


@pytest.mark.parametrize("element", [Element.BF16, Element.F16])
def test_small_floats_are_imported_as_such(run, element: Element) -> None:
    x = X.to(element.torch)
    imported = import_model(Of(lambda x: x @ x.t()), [x])
    assert imported.signature.results[0].type == TensorType((3, 3), element)
    torch.testing.assert_close(run(imported, [x]).output, x @ x.t(), rtol=0.01, atol=0.01)


# --- state ---------------------------------------------------------------------------------------------


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 5)
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x))


@pytest.mark.spec("L3")
def test_buffers_updated_in_training_mode_are_results_that_come_first(run) -> None:
    imported, ran = _check(run, Normed(), X, training=True)
    names = ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    assert [each.writes for each in imported.signature.results] == [*names, None]
    assert ran.written["norm.num_batches_tracked"].item() == 1


def test_in_evaluation_mode_nothing_is_written(run) -> None:
    imported, _ = _check(run, Normed(), X)
    roles = {each.name: each.role for each in imported.signature.arguments}
    assert roles == {
        "linear.weight": Role.PARAMETER,
        "linear.bias": Role.PARAMETER,
        "norm.weight": Role.PARAMETER,
        "norm.bias": Role.PARAMETER,
        "norm.running_mean": Role.BUFFER,
        "norm.running_var": Role.BUFFER,
        "x": Role.INPUT,
    }


@pytest.mark.parametrize("training", [False, True])
def test_an_import_leaves_the_model_as_it_was(training: bool) -> None:
    model = Normed()
    model.held = torch.ones(4)
    model.norm.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    held = model.held
    import_model(model, [X], training=training)
    assert model.training
    assert not model.norm.training
    assert model.__dict__["held"] is held
    assert "held" not in dict(model.named_buffers())
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_values_that_the_model_writes_are_kept_as_they_were_when_imported() -> None:
    model = Normed()
    imported = import_model(model, [X], training=True)
    model.train()(X)
    place = imported.signature.index_of("norm.num_batches_tracked")
    assert imported.arguments([X])[place].item() == 0
    weight = imported.arguments([X])[imported.signature.index_of("linear.weight")]
    assert weight.data_ptr() == model.linear.weight.data_ptr()


class Recurrent(nn.Module):
    """Keeps its state in a plain attribute, as KernelBench's recurrent nets do."""

    def __init__(self, *, in_place: bool) -> None:
        super().__init__()
        self.state = torch.linspace(0, 1, 6).reshape(3, 2)
        self.linear = nn.Linear(6, 2)
        self.in_place = in_place

    def forward(self, x: torch.Tensor, first: torch.Tensor | None = None) -> torch.Tensor:
        if first is not None:
            self.state.copy_(first)
        new = torch.tanh(self.linear(torch.cat((x, self.state), 1)))
        if self.in_place:
            self.state.copy_(new)
        else:
            self.state = new
        return new * 2


@pytest.mark.spec("L3")
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("inputs", [(X,), (X, torch.full((3, 2), 0.25))], ids=["kept state", "given state"])
def test_a_tensor_that_is_not_registered_is_written_all_the_same(
    run, in_place: bool, inputs: tuple[Any, ...]
) -> None:
    imported, ran = _check(run, Recurrent(in_place=in_place), *inputs)
    assert list(ran.written) == ["state"]
    (state,) = (each for each in imported.signature.arguments if each.name == "state")
    assert state.role is Role.CONSTANT


class WritesItsParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            self.weight.add_(1)
        return x * self.weight


def _in_place(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    return x + 1


def _locally_in_place(x: torch.Tensor) -> torch.Tensor:
    held = torch.tensor([1.0, 2.0, 3.0, 4.0])
    held.add_(1)
    held[0] = 9
    y = x.clone()
    y[:, 1] = 5
    return y + held


@pytest.mark.spec("L3")
@pytest.mark.parametrize(
    ("model", "written"),
    [
        (WritesItsParameter(), ["weight"]),
        (Of(_in_place), ["inputs_0"]),
        (Of(_locally_in_place), []),
    ],
    ids=["parameter", "input", "local"],
)
def test_writes_in_place_become_results(run, model: nn.Module, written: list[str]) -> None:
    _, ran = _check(run, model, X)
    assert list(ran.written) == written


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def test_tied_parameters_are_one_argument(run) -> None:
    imported, _ = _check(run, Tied(), X)
    weights = [each.name for each in imported.signature.arguments if each.name.endswith("weight")]
    assert len(weights) == 1


class NamedAlike(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("x", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.x


def test_a_buffer_called_like_an_input_has_a_name_of_its_own(run) -> None:
    imported, _ = _check(run, NamedAlike(), X)
    assert len({each.name for each in imported.signature.arguments}) == 2


# --- scans, recurrences ----------------------------------------------------------------------------------


@pytest.mark.spec("L3")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.cumsum(1),
        lambda x: x.cumprod(0),
        lambda x: x.flip(1).cumsum(1).flip(1),
        lambda x: x.clone().index_put_((torch.tensor([0, 2]),), torch.zeros(2, 4)),
        lambda x: x.sort(dim=1),
        lambda x: x.topk(2),
    ],
    ids=["cumsum", "cumprod", "reversed", "indexed write", "sort", "topk"],
)
def test_operations_of_tm_tensor_are_kept_and_told(run, function: Callable[..., Any]) -> None:
    imported = import_model(Of(function), [X])
    assert imported.uses_tm_tensor
    torch.testing.assert_close(run(imported, [X]).output, function(X))


def test_a_module_without_tm_tensor_says_so() -> None:
    assert not import_model(Of(lambda x: x + 1), [X]).uses_tm_tensor


def test_a_loop_in_forward_that_is_too_long_is_stopped_and_says_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exporting, "MOST_CALLS", 500)

    def loop(x: torch.Tensor) -> torch.Tensor:
        for _ in range(1000):
            x = torch.tanh(x)
        return x

    line = loop.__code__.co_firstlineno + 2
    with pytest.raises(ModelImportError, match=r"more than 500 torch functions .*fewer steps") as caught:
        import_model(Of(loop), [X])
    assert caught.value.source == f"{__file__}:{line}"


def test_many_parameters_are_no_long_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "MOST_CALLS", 50)
    import_model(nn.Sequential(*[nn.BatchNorm1d(4) for _ in range(12)]), [X])


# --- what cannot be imported ----------------------------------------------------------------------------


def _branch(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else x + 1


@pytest.mark.spec("L12")
@pytest.mark.parametrize(
    ("function", "op", "problem"),
    [
        (lambda x: torch.special.bessel_j0(x), "aten.special_bessel_j0", "torch-mlir cannot import"),
        (lambda x: torch.copysign(x, -x), "aten.copysign.Tensor", "torch-mlir cannot import"),
        (lambda x: x.to(torch.float8_e4m3fn).float(), "aten._to_copy", "float8_e4m3fn cannot be compiled"),
        (lambda x: x.nonzero(), "aten.nonzero", "whose size depends on values"),
        (lambda x: x.unique(), "aten._unique2", "whose size depends on values"),
        (lambda x: x.sum().item(), None, "a number computed from tensors"),
        (_branch, None, "must not depend on the values"),
        (lambda x: torch.fft.rfft(x), "aten.fft_rfft", "complex64 cannot be compiled"),
        (lambda x: x + torch.rand(4), "aten.rand", "draws random numbers"),
        (lambda x: F.dropout(x, training=True), "aten.native_dropout", "draws random numbers"),
        (lambda x: x @ x, None, "a and b must have same reduction dim"),
        (lambda x: x.foo(), None, "no attribute 'foo'"),
    ],
)
def test_what_cannot_be_imported_says_operation_line_and_why(
    function: Callable[..., Any], op: str | None, problem: str
) -> None:
    with pytest.raises(ModelImportError, match=problem) as caught:
        import_model(Of(function), [X])
    assert caught.value.op == op
    assert (caught.value.source or "").startswith(f"{__file__}:")
    assert str(caught.value).startswith(f"{caught.value.source}: import: ")


def test_what_may_draw_and_does_not_is_imported() -> None:
    assert import_model(Of(lambda x: F.rrelu(x, training=False)), [X]).signature.results


_NOISY = """
import torch
from kernelmark.errors import ModelImportError
from torchsched.ingress import import_model

class Model(torch.nn.Module):
    def forward(self, x):
        return FORWARD

try:
    import_model(Model(), [torch.ones(3)])
except ModelImportError as error:
    assert "PROBLEM" in str(error), error
else:
    raise AssertionError("imported")
"""


@pytest.mark.spec("L12")
@pytest.mark.parametrize(
    ("forward", "problem"),
    [
        # torch logs, and prints the graph so far.
        ("x if x.sum() > 0 else x + 1", "must not depend on the values"),
        ("torch.special.bessel_j0(x)", "aten.special_bessel_j0"),
    ],
)
def test_a_failure_is_told_by_its_error_and_nothing_else(forward: str, problem: str) -> None:
    program = _NOISY.replace("FORWARD", forward).replace("PROBLEM", problem)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_writing_a_tensor_from_outside_the_model_says_what_to_do() -> None:
    with pytest.raises(
        ModelImportError, match=r"lifted_tensor_0 is mutated.*register it with register_buffer"
    ):
        import_model(Of(lambda x: HELD.add_(1) + x), [X])


def test_what_forward_prints_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    import_model(Of(lambda x: (print("in forward"), x)[1]), [X])
    assert "in forward" in capfd.readouterr().out


def test_the_line_is_the_models_own_where_a_library_calls_the_operation() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Sequential(nn.Dropout())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.drop(x)

    with pytest.raises(ModelImportError) as caught:
        import_model(Model(), [X], training=True)
    assert caught.value.source == f"{__file__}:{Model.forward.__code__.co_firstlineno + 1}"


def test_operations_keep_the_models_own_line() -> None:
    module = import_model(Normed(), [X]).module
    text = module.operation.get_asm(enable_debug_info=True)
    assert f'"{__file__}":{Normed.forward.__code__.co_firstlineno + 1}:' in text
    assert "site-packages" not in text


def test_a_failure_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ModelImportError):
        import_model(Of(lambda x: torch.special.bessel_j0(x)), [X])
    assert not list(tmp_path.iterdir())


def test_models_are_imported_from_several_threads() -> None:
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        if number % 2:
            found[number] = import_model(Of(lambda x: x + number), [X]).signature
        else:
            with pytest.raises(ModelImportError) as caught:
                import_model(Of(lambda x: torch.special.bessel_j0(x)), [X])
            found[number] = caught.value.op

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert all(found[number] == "aten.special_bessel_j0" for number in (0, 2, 4))


# --- calls ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        ((X.t(), 2), r"input 'inputs_0' of Of is 4x3xf32, and the module was imported for 3x4xf32"),
        ((X.double(), 2), "is 3x4xf64"),
        ((3.0, 2), "is float, and the module was imported for 3x4xf32"),
        ((X, 3), "input 1 of Of is 3, and 2 was built into the module"),
        ((X, 2.0), "input 1 of Of is 2.0, and 2 was built in"),
        ((X,), "is called with"),
        (((X, X), 2), "is called with"),
    ],
)
def test_a_call_with_other_inputs_is_refused(inputs: tuple[Any, ...], problem: str, scaled) -> None:
    with pytest.raises(ModelRunError, match=problem):
        scaled.arguments(inputs)


@pytest.fixture(scope="module")
def scaled() -> Any:
    return import_model(Of(lambda x, k: x * k), [X, 2])


def test_arguments_come_in_signature_order() -> None:
    model = Normed()
    imported = import_model(model, [X])
    arguments = imported.arguments([X])
    assert len(arguments) == len(imported.signature.arguments)
    for value, argument in zip(arguments, imported.signature.arguments, strict=True):
        assert (tuple(value.shape), value.requires_grad) == (argument.type.shape, False)
    assert imported.inputs_of(arguments)[0].data_ptr() == X.data_ptr()
