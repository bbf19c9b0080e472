"""What torch.compile hands to a backend: bound by placeholder, with sizes, writes and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func

from torchsched.ingress import Imported, import_graph

X = torch.linspace(-2, 2, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Backend:
    """Imports each graph and runs it by plain loops, with the writes that it makes."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run = run
        self.imported: list[Imported] = []
        self.placeholders: list[list[str]] = []

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        imported = import_graph(graph, example_inputs)
        self.imported.append(imported)
        self.placeholders.append([node.name for node in graph.graph.nodes if node.op == "placeholder"])
        first = True

        def call(*inputs: Any) -> Any:
            nonlocal first
            assert first, "the module is lowered once"
            first = False
            ran = self.run(imported, inputs)
            arguments = dict(
                zip([each.name for each in imported.signature.inputs], _tensors(inputs), strict=True)
            )
            for name, value in ran.written.items():
                arguments[name].copy_(value)
            return ran.output

        return call


def _tensors(inputs: Sequence[Any]) -> list[torch.Tensor]:
    return [each for each in inputs if isinstance(each, torch.Tensor)]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.second = nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


@pytest.mark.spec("L4")
def test_a_graph_is_bound_by_placeholder_whatever_their_order(run) -> None:
    backend, model = Backend(run), Net()
    with torch.no_grad():
        got = torch.compile(model, backend=backend)(X)
        torch.testing.assert_close(got, model(X))
    (imported,), (names,) = backend.imported, backend.placeholders
    assert [each.name for each in imported.signature.arguments] == names
    assert names[0] != "l_x_", (
        "torch.compile orders placeholders by first use, so this model shows the difference"
    )


@pytest.mark.spec("L4")
def test_a_graph_break_gives_two_graphs(run) -> None:
    class Broken(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.first(x))
            torch._dynamo.graph_break()
            return self.second(x)

    backend, model = Backend(run), Broken()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=backend)(X), model(X))
    assert len(backend.imported) == 2


@pytest.mark.spec("L4")
def test_buffers_updated_in_training_mode_are_written(run) -> None:
    backend, model, reference = Backend(run), nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=backend)(X), reference(X))
    torch.testing.assert_close(model.state_dict(), reference.state_dict())
    assert sum(each.writes is not None for each in backend.imported[0].signature.results) == 3


@pytest.mark.spec("L4")
def test_symbolic_sizes_become_numbers_and_are_guarded(run) -> None:
    backend, model = Backend(run), Net()
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        for rows in (3, 5, 7):
            x = torch.ones(rows, 4)
            torch.testing.assert_close(compiled(x), model(x))
    shapes = [
        each.type.shape
        for imported in backend.imported
        for each in imported.signature.inputs
        if each.name == "l_x_"
    ]
    assert shapes == [(3, 4), (5, 4), (7, 4)]


@pytest.mark.spec("L4")
def test_several_outputs_constants_and_inputs_come_back(run) -> None:
    def function(x: torch.Tensor, n: int) -> tuple[Any, ...]:
        return x + n, x, {"n": n, "flags": x > 0}, None

    backend = Backend(run)
    torch.testing.assert_close(torch.compile(function, backend=backend)(X, 2), function(X, 2))


@pytest.mark.spec("L4")
def test_forward_and_backward_graphs_of_autograd_are_imported(run) -> None:
    backend, model, reference = Backend(run), Net(), Net()
    reference.load_state_dict(model.state_dict())

    def boxed(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(backend(graph, example_inputs))

    wrapped = aot_autograd(fw_compiler=boxed, bw_compiler=boxed)
    torch.compile(model, backend=wrapped)(X).square().sum().backward()
    reference(X).square().sum().backward()
    for mine, expected in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, expected.grad)
    assert len(backend.imported) == 2


def test_a_graph_made_by_hand_is_imported_with_its_own_state(run) -> None:
    graph = torch.fx.symbolic_trace(Net())
    imported = import_graph(graph, [X])
    with torch.no_grad():
        torch.testing.assert_close(run(imported, [X]).output, graph(X))
    assert [each.name for each in imported.signature.inputs] == ["x"]
