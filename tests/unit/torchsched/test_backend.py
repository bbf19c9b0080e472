"""``torch.compile(model, backend="kernelmark-mlir")``: graphs, what they write, gradients, sizes, and what fails."""

from __future__ import annotations

import copy
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytest.importorskip("torch_mlir")

from torch._dynamo.utils import counters

from kernelmark.errors import ModelImportError, UnavailableError, UsageError
from torchsched import backend as backends
from torchsched.backend import NAME, Backend, BackendOptions, Direction
from torchsched.building import build
from torchsched.failures import Stage
from torchsched.ingress import load_model

MODELS = Path(__file__).resolve().parents[3] / "examples" / "KernelBench" / "models"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    counters[NAME].clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def backend() -> Backend:
    return Backend()


def _net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def _close(got: Any, expected: Any) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


# --- what is compiled -----------------------------------------------------------------------------------


@pytest.mark.spec("L4")
def test_installed_it_needs_no_import_of_this_package() -> None:
    script = """
        import sys, torch
        assert not [name for name in sys.modules if name.startswith("kernelmark")]
        net = torch.nn.Linear(4, 4)
        compiled = torch.compile(net, backend="kernelmark-mlir", options={"threads": 1, "pipeline": "loops"})
        x = torch.randn(3, 4)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), net(x))
        print(dict(torch._dynamo.utils.counters["kernelmark-mlir"]))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{'compiled': 1}"


@pytest.mark.spec("L4")
@pytest.mark.parametrize("path", sorted(MODELS.glob("level*/*.py")), ids=lambda path: path.stem)
def test_each_shipped_model_gives_what_the_import_of_the_whole_model_gives(
    backend: Backend, path: Path
) -> None:
    loaded = load_model(path)
    model, inputs = loaded.model.eval(), loaded.inputs
    # torch.compile leaves a recurrent net to eager, with no graph at all, unless it is told otherwise
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        eager = copy.deepcopy(model)(*copy.deepcopy(inputs))
        got = torch.compile(copy.deepcopy(model), backend=backend)(*copy.deepcopy(inputs))
    built = build(model, inputs)
    bound = built.compiled.bind([each.clone() for each in built.imported.arguments(inputs)])
    bound()
    whole = built.imported.assemble(bound.results)
    torch.testing.assert_close(got, eager, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(got, whole, rtol=1e-5, atol=1e-5)
    assert len(backend.subgraphs) == 1
    assert not backend.subgraphs[0].reason


def test_a_recurrent_layer_has_gradients(backend: Backend) -> None:
    layer = nn.GRU(4, 4)
    x = torch.randn(3, 2, 4)
    with torch._dynamo.config.patch(allow_rnn=True):
        torch.compile(layer, backend=backend)(x)[0].sum().backward()
    got = [parameter.grad for parameter in layer.parameters()]
    assert [each.direction for each in backend.subgraphs] == [Direction.FORWARD, Direction.BACKWARD]
    layer.zero_grad()
    layer(x)[0].sum().backward()
    _close(got, [parameter.grad for parameter in layer.parameters()])


@pytest.mark.spec("L4")
@pytest.mark.spec("L4")
@pytest.mark.parametrize("masked", [False, True])
def test_an_encoder_layer_that_torch_makes_one_operation_is_compiled(backend: Backend, masked: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=masked).eval()
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    options = {"src_key_padding_mask": padding} if masked else {}
    with torch.no_grad():
        _close(torch.compile(layer, backend=backend)(x, **options), layer(x, **options))
    (subgraph,) = backend.subgraphs
    assert subgraph.compiled is not None


def test_a_graph_break_makes_two_graphs_and_each_is_compiled(backend: Backend) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        return y.exp() * x

    x = torch.randn(3, 8)
    _close(torch.compile(function, backend=backend)(x), function(x))
    assert [each.direction for each in backend.subgraphs] == [Direction.INFERENCE] * 2
    for each in backend.subgraphs:
        assert each.compiled is not None
        assert list(each.seconds) == [Stage.IMPORT, Stage.LOWER, Stage.COMPILE]
    assert counters[NAME] == {"compiled": 2}


def test_parameters_come_in_the_order_in_which_the_graph_uses_them(backend: Backend) -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.second).tanh() - self.first

    model, x = Late(), torch.randn(2, 4)
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        _close(compiled(x), model(x))
        model.first.add_(1)  # parameters are read in each call, not built in
        _close(compiled(x), model(x))
    assert len(backend.subgraphs) == 1


@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_updates_its_statistics_in_training_mode_and_only_there(
    backend: Backend, training: bool
) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).train(training)
    other, x = copy.deepcopy(model), torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        _close(torch.compile(model, backend=backend)(x), other(x))
    for name, value in model.state_dict().items():
        _close(value, other.state_dict()[name])
    assert model[1].num_batches_tracked == int(training)


def test_an_input_that_is_written_is_written_and_views_of_it_stay_views(backend: Backend) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x.add_(1)
        return x.t(), x * y, x

    x, y = torch.ones(3, 4), torch.randn(3, 4)
    turned, product, same = torch.compile(function, backend=backend)(x, y)
    assert x.eq(2).all()
    assert same is x
    _close(product, 2 * y)
    x.fill_(7)
    assert turned.eq(7).all()


@pytest.mark.parametrize("layout", ["its own", "turned", "unaligned"])
def test_an_output_that_is_handed_in_is_written_whatever_its_layout(backend: Backend, layout: str) -> None:
    def function(x: torch.Tensor, out: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total += x.sum()
        return out.copy_(x.exp())

    x = torch.randn(4, 8)
    out = {
        "its own": torch.zeros(4, 8),
        "turned": torch.zeros(8, 4).t(),
        "unaligned": torch.zeros(33)[1:].view(4, 8),
    }
    total = torch.tensor(1.0)
    given = torch.compile(function, backend=backend)(x, out[layout], total)
    assert given is out[layout]
    _close(given, x.exp())
    _close(total, 1 + x.sum())


def test_memory_of_any_layout_goes_in(backend: Backend) -> None:
    compiled = torch.compile(lambda x: x.exp() + x[:, 1:3].sum(), backend=backend, dynamic=False)
    for x in (torch.randn(8, 3).t(), torch.randn(100)[1:25].view(3, 8), torch.randn(3, 16)[:, ::2]):
        _close(compiled(x), x.exp() + x[:, 1:3].sum())


def test_numbers_and_integer_and_boolean_tensors_go_in_and_out(backend: Backend) -> None:
    def function(x: torch.Tensor, keep: torch.Tensor, n: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return torch.where(keep, x + n, x * 0), ~keep, n + 1

    x, keep = torch.arange(6), torch.tensor([True, False] * 3)
    compiled = torch.compile(function, backend=backend)
    for n in (2, 3, 4):
        for got, expected in zip(compiled(x, keep, n), function(x, keep, n), strict=True):
            assert torch.equal(torch.as_tensor(got), torch.as_tensor(expected))


# --- gradients --------------------------------------------------------------------------------------------


def test_gradients_are_those_of_eager(backend: Backend) -> None:
    model, x = _net(), torch.randn(3, 8)
    other = copy.deepcopy(model)
    torch.compile(model, backend=backend)(x).square().sum().backward()
    other(x).square().sum().backward()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        _close(mine.grad, theirs.grad)
    assert [each.direction for each in backend.subgraphs] == [Direction.FORWARD, Direction.BACKWARD]


def test_gradients_that_begin_from_one_constant_are_kept_apart(backend: Backend) -> None:
    """Those of a layer norm's weight and bias are two sums over the same rows."""
    norm, x = nn.LayerNorm(8), torch.randn(4, 8)
    slope = torch.randn(4, 8)
    got = torch.autograd.grad(torch.compile(norm, backend=backend)(x), list(norm.parameters()), slope)
    expected = torch.autograd.grad(norm(x), list(norm.parameters()), slope)
    for mine, theirs in zip(got, expected, strict=True):
        _close(mine, theirs)


def test_what_forward_keeps_for_backward_is_not_copied_if_it_is_an_input(backend: Backend) -> None:
    w, x = torch.randn(4, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    torch.compile(lambda x, w: torch.tanh(x @ w), backend=backend)(x, w).sum().backward()
    forward = backend.subgraphs[0].compiled
    assert forward is not None
    assert [str(result.type) for result in forward.signature.results] == [
        "3x4xf32"
    ]  # for the answer and for tanh
    assert x.grad is not None


@pytest.mark.parametrize(
    "function", [lambda x: x.max(-1).values, lambda x: x.sort(-1).values, lambda x: x.topk(2, -1).values]
)
def test_gradients_go_where_a_place_says(backend: Backend, function: Callable[..., Any]) -> None:
    x = torch.randn(2, 8, requires_grad=True)
    other = x.detach().clone().requires_grad_()
    torch.compile(function, backend=backend, dynamic=False)(x).square().sum().backward()
    function(other).square().sum().backward()
    _close(x.grad, other.grad)


def test_a_backward_graph_that_is_not_compiled_names_its_operation(backend: Backend) -> None:
    x = torch.randn(1, 4, 8, 8, requires_grad=True)
    out = torch.compile(lambda x: nn.functional.avg_pool2d(x, 2) * 3, backend=backend, dynamic=False)(x)
    with pytest.raises(ModelImportError, match=r"operation: aten\.avg_pool2d_backward") as raised:
        out.sum().backward()
    assert raised.value.op == "aten.avg_pool2d_backward"


def test_attention_of_a_batch_lies_as_eagers(backend: Backend) -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        q = x.view(2, 16, 4, 8).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(32, 32)

    x = torch.randn(2, 16, 32)
    _close(torch.compile(attend, backend=backend, dynamic=False)(x), attend(x))


def test_an_optimiser_trains_a_compiled_net(backend: Backend) -> None:
    model, x = _net(), torch.randn(64, 8)
    target = x[:, :4] * 2
    compiled = torch.compile(model, backend=backend)
    steps = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(40):
        steps.zero_grad()
        loss = (compiled(x) - target).square().mean()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 5
    assert len(backend.subgraphs) == 2


# --- sizes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_each_size_gets_a_build_of_its_own(backend: Backend, dynamic: bool | None) -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return torch.relu(x) * x.shape[0], x.shape[0] * 2

    compiled = torch.compile(function, backend=backend, dynamic=dynamic)
    for size in (2, 3, 5, 2, 3, 5):
        x = torch.randn(size, 4)
        got, number = compiled(x)
        _close(got, function(x)[0])
        assert number == 2 * size
    # the second size is what shows dynamo that sizes differ, so with None the first is built twice
    assert len(backend.subgraphs) == (4 if dynamic is None else 3)


def test_more_sizes_than_dynamo_would_compile_for_are_no_limit() -> None:
    backend = Backend(BackendOptions(most_shapes=3, pipeline="loops"))
    compiled = torch.compile(torch.relu, backend=backend, dynamic=True)
    for size in range(2, 13):
        x = torch.randn(size)
        assert torch.equal(compiled(x), torch.relu(x))
    assert len(backend.subgraphs) == 11
    compiled(torch.randn(12))
    assert len(backend.subgraphs) == 11  # among the last three
    compiled(torch.randn(2))
    assert len(backend.subgraphs) == 12  # that build was let go


def test_gradients_of_open_sizes(backend: Backend) -> None:
    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w).sum() / x.shape[0]

    compiled = torch.compile(function, backend=backend, dynamic=True)
    w = torch.randn(4, 4, requires_grad=True)
    for size in (2, 5):
        x = torch.randn(size, 4, requires_grad=True)
        got = torch.autograd.grad(compiled(x, w), (x, w))
        for mine, theirs in zip(got, torch.autograd.grad(function(x, w), (x, w)), strict=True):
            _close(mine, theirs)


# --- what fails -------------------------------------------------------------------------------------------


def _singular(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.svd(x)[1]


def test_a_graph_that_cannot_be_compiled_is_an_error_with_its_stage_operation_and_line(
    backend: Backend,
) -> None:
    with pytest.raises(Exception, match=r"ModelImportError: .*test_backend\.py:\d+: import: ") as caught:
        torch.compile(_singular, backend=backend)(torch.eye(3))
    assert "operation: aten._linalg_svd" in str(caught.value)
    assert not counters[NAME]


def test_where_it_is_asked_for_such_a_graph_runs_as_pytorch_runs_it_and_says_so_once() -> None:
    backend = Backend(BackendOptions(fallback=True))

    def function(x: torch.Tensor) -> torch.Tensor:
        y = _singular(x)
        torch._dynamo.graph_break()
        return y * 2

    compiled = torch.compile(function, backend=backend)
    with pytest.warns(RuntimeWarning, match=r"runs as PyTorch runs it, since fallback was asked for.*svd"):
        assert torch.equal(compiled(torch.eye(3)), torch.full((3,), 2.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(torch.eye(3))
    assert counters[NAME] == {"fell back to eager": 1, "compiled": 1}
    first, second = backend.subgraphs
    assert first.compiled is None
    assert "_linalg_svd" in first.reason
    assert second.compiled is not None
    assert not second.reason


def test_a_wrong_schedule_is_an_error_also_where_fallback_is_asked_for() -> None:
    backend = Backend(BackendOptions(pipeline="no_such", fallback=True))
    with pytest.raises(Exception, match="ScheduleError: no schedule 'no_such' for f32"):
        torch.compile(torch.relu, backend=backend)(torch.ones(2))


def test_random_numbers_are_refused(backend: Backend) -> None:
    with pytest.raises(Exception, match="draws random numbers"):
        torch.compile(nn.Dropout(0.5), backend=backend)(torch.ones(4))


def test_another_device_is_refused_when_it_is_compiled(backend: Backend) -> None:
    with pytest.raises(Exception, match="is on meta, and code is made for the CPU"):
        torch.compile(torch.relu, backend=backend)(torch.ones(4, device="meta"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"thread": 1}, r"has no option 'thread'; did you mean 'threads'\?"),
        ({"fallback": 1}, "fallback=1: give True or False"),
        ({"params": [8]}, r"params=\[8\]: give a dict"),
        ({"threads": 0}, "threads=0: give a whole number"),
        ({"target": "x86-46"}, "target 'x86-46' is not known"),
    ],
)
def test_a_wrong_option_is_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        torch.compile(torch.relu, backend="kernelmark-mlir", options=options)(torch.ones(2))
    with pytest.raises(UsageError, match=said):
        BackendOptions.read(options).resolve_target()


def test_code_for_another_architecture_is_not_made_here() -> None:
    other = "aarch64" if Backend().target.name == "x86_64" else "x86_64"
    with pytest.raises(UnavailableError, match=f"target {other}: this machine is"):
        Backend(BackendOptions(target=other))


def test_the_module_of_each_graph_can_be_seen_from_import_to_the_last_step() -> None:
    seen: list[tuple[str, str]] = []
    backend = Backend(
        BackendOptions(pipeline="loops"), observer=lambda name, module: seen.append((name, str(module)))
    )

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        torch._dynamo.graph_break()
        return y * 2

    torch.compile(function, backend=backend)(torch.ones(4))
    assert seen[0][0] == "graph 1 (inference): import"
    assert "linalg.generic" in seen[0][1]
    last = [text for name, text in seen if name.startswith("graph 2 (inference): ")][-1]
    assert "llvm.func @main" in last


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((torch.float32, torch.float64), "f64"),
        ((torch.bfloat16, torch.int64), "bf16"),
        ((torch.int64,), "f32"),
    ],
)
def test_the_schedule_is_looked_up_for_the_type_that_most_bytes_have(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, kinds: tuple[torch.dtype, ...], expected: str
) -> None:
    asked: list[str] = []
    find: Callable[..., Any] = backends.find_schedule

    def watched(pipeline: Any, element: Any, *others: Any, **named: Any) -> Any:
        asked.append(str(element))
        return find(pipeline, element, *others, **named)

    monkeypatch.setattr(backends, "find_schedule", watched)
    tensors = [torch.ones(4, dtype=kind) for kind in kinds]
    torch.compile(lambda *each: [x + 1 for x in each], backend=backend)(*tensors)
    assert asked == [expected]
