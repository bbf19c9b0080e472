"""How a graph that torch.compile hands over is called: what is computed, what only passes through, one build a shape.

Knows torch's graphs and what calls them. How a graph is built is told by the caller.
"""

from __future__ import annotations

import operator
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._guards import tracing
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from torchsched.execution import Compiled
from torchsched.failures import Stage, failure
from torchsched.ingress import Imported
from torchsched.packing import ALIGNMENT

__all__ = [
    "Boxed",
    "boxed",
    "call_compiled",
    "has_symbols",
    "outside_of_compilation",
    "per_shape",
    "require_cpu",
    "without_onednn",
    "without_passed_through",
]

_Place = Callable[[list[Any], list[Any]], Any]
"""Gives one output of a graph, of its inputs and of what was computed of it."""

Boxed = Callable[[list[Any]], Sequence[Any]]
"""Takes a list of the graph's inputs, which it may empty, and gives its outputs."""


def boxed(function: Boxed) -> Boxed:
    """Mark a function as one that takes its inputs in a list."""
    function._boxed_call = True  # type: ignore[attr-defined]  # torch looks for this name
    return function


@contextmanager
def outside_of_compilation() -> Iterator[None]:
    """Step out of the ``torch.compile`` that asks: its fake tensors must not meet those of an import."""
    with _disable_current_modes(), tracing(None):
        yield


@contextmanager
def without_onednn() -> Iterator[None]:
    """Let torch take a recurrent layer apart into its steps, rather than make it one call of oneDNN's."""
    before = torch._C._get_mkldnn_enabled()
    # not torch.backends.mkldnn.flags, which also sets what it says this build does not have
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def require_cpu(example_inputs: Sequence[Any]) -> None:
    """Refuse a graph on another device.

    Raises:
        ModelImportError: an input is there.
    """
    for number, value in enumerate(example_inputs):
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise failure(
                Stage.IMPORT,
                f"input {number} of the graph is on {value.device}, and code is made for the CPU; move the model and"
                " its inputs there, or compile it with another backend",
            )


def has_symbols(example_inputs: Sequence[Any]) -> bool:
    """Whether a size or number among the inputs is one that torch.compile left open."""
    symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
    for value in example_inputs:
        if isinstance(value, symbolic):
            return True
        if isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape):
            return True
    return False


def without_passed_through(
    graph: torch.fx.GraphModule,
) -> tuple[torch.fx.GraphModule | None, Callable[[list[Any], Sequence[Any]], list[Any]]]:
    """Take from a graph the outputs that are its inputs, constants, or another output once more, or a view of it.

    What a forward graph keeps for its backward are mostly inputs, the weights among them; as results of compiled
    code each of them would be copied. Outputs that share memory in eager share it here: of several that are views
    of one tensor that tensor is computed, and the views are taken of it.

    Returns:
        The graph that is left, None where nothing is; and what makes all outputs of the inputs and its outputs.
    """
    copy = torch.fx.GraphModule(graph, _copied(graph.graph))
    placeholders = [node for node in copy.graph.nodes if node.op == "placeholder"]
    output = next(node for node in reversed(copy.graph.nodes) if node.op == "output")
    outputs = [_itself(value) for value in output.args[0]]
    shared = Counter(_base(node) for node in dict.fromkeys(outputs) if isinstance(node, torch.fx.Node))
    computed: list[torch.fx.Node] = []

    def place_of(node: Any) -> _Place:
        if not isinstance(node, torch.fx.Node):
            return lambda inputs, results: node
        if node in placeholders:
            number = placeholders.index(node)
            return lambda inputs, results: inputs[number]
        base = _base(node)
        if base is not node and shared[base] > 1 and base not in placeholders:
            leaves, tree = pytree.tree_flatten((node.args, node.kwargs))
            given = [place_of(_itself(leaf)) for leaf in leaves]

            def view(inputs: list[Any], results: list[Any]) -> Any:
                args, kwargs = pytree.tree_unflatten([each(inputs, results) for each in given], tree)
                return node.target(*args, **kwargs)  # type: ignore[operator]  # a call_function node

            return view
        if node not in computed:
            computed.append(node)
        number = computed.index(node)
        if (
            shared[node] < 2
            or not isinstance(value := node.meta.get("val"), torch.Tensor)
            or value.is_contiguous()
        ):
            return lambda inputs, results: results[number]
        # views of it were taken of a tensor that lies otherwise
        order = sorted(range(value.dim()), key=value.stride, reverse=True)

        def laid_out(inputs: list[Any], results: list[Any]) -> torch.Tensor:
            if results[number].is_contiguous():
                result = results[number]
                results[number] = torch.empty_permuted(result.shape, order, dtype=result.dtype).copy_(result)
            return results[number]

        return laid_out

    places = [place_of(value) for value in outputs]
    writes = any(node.target is torch.ops.aten.copy_.default for node in copy.graph.nodes)

    def assemble(inputs: list[Any], results: Sequence[Any]) -> list[Any]:
        given = list(results)
        return [place(inputs, given) for place in places]

    if not computed and not writes:
        return None, assemble
    output.args = (tuple(computed),)
    copy.graph.eliminate_dead_code()
    copy.recompile()
    return copy, assemble


_SAME = (torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.copy_.default)


def _itself(value: Any) -> Any:
    """Look through operations that give their operand, or what they have written to."""
    while isinstance(value, torch.fx.Node) and value.op == "call_function" and value.target in _SAME:
        value = value.args[0]
    return value


def _base(node: torch.fx.Node) -> torch.fx.Node:
    """Give the node whose memory a node's is: its own, but for a view that can be taken again."""
    while (viewed := _viewed(node)) is not None:
        node = viewed
    return node


def _viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    call: Any = node.args[0] if node.target is operator.getitem else node
    schema = getattr(call.target, "_schema", None)
    if schema is None or not any(each.alias_info and not each.alias_info.is_write for each in schema.returns):
        return None
    tensor = _itself(call.args[0])
    numbers = [each for each in call.all_input_nodes if each is not call.args[0]]
    known = all(each.op == "placeholder" for each in numbers)
    return tensor if isinstance(tensor, torch.fx.Node) and known else None


def _copied(graph: torch.fx.Graph) -> torch.fx.Graph:
    copy = torch.fx.Graph()
    output = copy.graph_copy(graph, {})
    copy.output(output)
    return copy


def call_compiled(imported: Imported, compiled: Compiled) -> Boxed:
    """Give the function that calls compiled code with a graph's inputs."""
    constants = list(imported.values)
    inputs, outputs = imported.inputs.leaves, imported.outputs.leaves
    signature = imported.signature
    written = {signature.index_of(each.writes) for each in signature.results if each.writes is not None}
    # a call gives the results that write no argument
    returned = [signature.results.index(each) for each in signature.outputs]
    place_of = {result: place for place, result in enumerate(returned)}

    @boxed
    def call(values: list[Any]) -> Sequence[Any]:
        arguments: list[Any] = list(constants)
        stand_ins: list[tuple[torch.Tensor, torch.Tensor]] = []
        for number, (value, place) in enumerate(zip(values, inputs, strict=True)):
            if isinstance(place, tuple):
                _require_same(number, value, place[0])
            else:
                arguments[place] = _plain(value)
                if place in written and arguments[place] is not value:
                    stand_ins.append((value, arguments[place]))
        results = compiled(*arguments)
        for value, stand_in in stand_ins:
            value.detach().copy_(stand_in)
        return [each[0] if isinstance(each, tuple) else results[place_of[each]] for each in outputs]

    return call


def per_shape(build: Callable[[list[Any]], Boxed], most: int) -> Boxed:
    """Build anew for each set of sizes and numbers that comes, and keep the ``most`` used last."""
    built: OrderedDict[tuple[Any, ...], Boxed] = OrderedDict()

    @boxed
    def call(values: list[Any]) -> Sequence[Any]:
        key = tuple(tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in values)
        if (found := built.get(key)) is None:
            found = built[key] = build(values)
            while len(built) > most:
                built.popitem(last=False)
        built.move_to_end(key)
        return found(values)

    return call


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Give the same values as compiled code takes them: contiguous and aligned."""
    if tensor.is_contiguous() and not tensor.is_neg() and tensor.data_ptr() % ALIGNMENT == 0:
        return tensor
    tensor = tensor.detach().resolve_neg().contiguous()
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


def _require_same(number: int, value: Any, built_in: Any) -> None:
    if value != built_in:
        raise failure(
            Stage.RUN,
            f"input {number} of a compiled graph is {value!r}, and {built_in!r} was built into it; sizes are fixed when"
            " a graph is compiled, so compile with torch.compile(..., dynamic=False)",
        )
