"""Reads an exported program: its inputs and outputs by role, and its graph made plain enough for torch-mlir.

Knows torch's graph signature and fx nodes, and no MLIR. The graph of a decomposed program is functional, with a
placeholder for every tensor from outside; what remains to do is to drop what is no tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from kernelmark.errors import UsageError
from torchsched.elements import Element
from torchsched.failures import Stage, failure
from torchsched.ingress.checks import Check, add_checks
from torchsched.ingress.constants import Constants, fold_constants
from torchsched.ingress.exporting import Exported, place_of
from torchsched.ingress.imported import type_of
from torchsched.ingress.narrow_integers import widen_narrow_integers
from torchsched.ingress.upstream import refusal_of, rewrite_for_torch_mlir
from torchsched.signature import Argument, Result, Role, TensorType

__all__ = ["Inputs", "Outputs", "make_plain", "name_of", "operators_by_line", "read_inputs", "read_outputs"]

_ROLES = {
    InputKind.PARAMETER: Role.PARAMETER,
    InputKind.BUFFER: Role.BUFFER,
    InputKind.CONSTANT_TENSOR: Role.CONSTANT,
    InputKind.USER_INPUT: Role.INPUT,
}
_MADE_BY_AOT = "_tensor_constant"
"""How AOTAutograd calls a tensor that was made of numbers in ``forward`` and stands beside its graph."""
_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arguments, the placeholder and the value of each, and the leaves of a call's inputs."""

    arguments: tuple[Argument, ...]
    nodes: tuple[torch.fx.Node, ...]
    values: tuple[torch.Tensor | None, ...]
    leaves: tuple[int | tuple[Any], ...]
    known: frozenset[torch.fx.Node]
    """The placeholders of tensors that were made in ``forward`` and that nobody else can write."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """The results, the node of each, and the leaves of what the model returns."""

    results: tuple[Result, ...]
    nodes: tuple[torch.fx.Node, ...]
    leaves: tuple[int | tuple[Any], ...]


def read_inputs(exported: Exported, name: str, input_names: Sequence[str] | None = None) -> Inputs:
    """Read the arguments of the program, without those parameters, buffers and constants that it does not use.

    Args:
        exported: The program.
        name: What messages call the model.
        input_names: Names of the inputs' leaves in order, in place of those of ``forward``'s parameters.

    Raises:
        ModelImportError: an input is none that code can be compiled for.
    """
    program = exported.program
    written = {each.target for each in program.graph_signature.output_specs if each.kind in _MUTATIONS}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    arguments, nodes, values, leaves = [], [], [], []
    known: set[torch.fx.Node] = set()
    taken = {node.name for node in placeholders} if input_names is None else set(input_names)
    for spec, node in zip(program.graph_signature.input_specs, placeholders, strict=True):
        if spec.kind not in _ROLES or not isinstance(spec.arg, TensorArgument | ConstantArgument):
            raise failure(Stage.IMPORT, f"{name} has an input that is neither tensor nor constant: {spec}")
        if isinstance(spec.arg, ConstantArgument):
            leaves.append((spec.arg.value,))
            continue
        role = _ROLES[spec.kind]
        target = str(spec.target)
        if role is Role.INPUT:
            label = input_names[len(leaves)] if input_names else str(node.name)
            leaves.append(len(arguments))
            value = None
        elif not node.users and target not in written:
            continue
        else:
            # A buffer may be called like an input; the names of placeholders differ.
            label = target if target not in taken else node.name
            value = _value_of(program, target, copy=target in written)
            made = spec.kind is InputKind.CONSTANT_TENSOR or target.startswith(_MADE_BY_AOT)
            if made and target not in written:
                known.add(node)
            role = Role.CONSTANT if target in exported.held else role
        arguments.append(Argument(label, role, _type_of(node, name)))
        nodes.append(node)
        values.append(value)
    return Inputs(tuple(arguments), tuple(nodes), tuple(values), tuple(leaves), frozenset(known))


def _value_of(program: ExportedProgram, target: str, *, copy: bool) -> torch.Tensor:
    held: Any = program.state_dict if target in program.state_dict else program.constants
    value: torch.Tensor = held[target].detach()
    return value.clone() if copy else value


def read_outputs(program: ExportedProgram, inputs: Inputs, name: str) -> Outputs:
    """Read the results of the program: what it writes first, then what it returns.

    Raises:
        ModelImportError: it returns a number computed from tensors, or a tensor whose size is not known.
    """
    specs = program.graph_signature.output_specs
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    names = {node.name: argument.name for node, argument in zip(inputs.nodes, inputs.arguments, strict=True)}
    placeholders = {
        spec.target: spec.arg.name
        for spec in program.graph_signature.input_specs
        if isinstance(spec.arg, TensorArgument)
    }
    labels = iter(_labels(program))
    results, nodes, leaves = [], [], []
    for spec, node in zip(specs, output.args[0], strict=True):
        if spec.kind in _MUTATIONS:
            # An input that is written is named by its placeholder, and state by its own name.
            by_placeholder = spec.kind is OutputKind.USER_INPUT_MUTATION
            writes = names[str(spec.target) if by_placeholder else placeholders[spec.target]]
            results.append(Result(writes, _type_of(node, name), writes))
            nodes.append(node)
            continue
        label = next(labels)
        if isinstance(spec.arg, ConstantArgument):
            leaves.append((spec.arg.value,))
            continue
        leaves.append(len(results))
        results.append(Result(label, _type_of(node, name)))
        nodes.append(node)
    return Outputs(tuple(results), tuple(nodes), tuple(leaves))


def _labels(program: ExportedProgram) -> list[str]:
    """Name the leaves of what the model returns: ``out``, ``out[0]``, ``out['loss']``."""
    structure = program.call_spec.out_spec
    if structure is None:
        return []
    tree = pytree.tree_unflatten(list(range(structure.num_leaves)), structure)
    return [f"out{pytree.keystr(path)}" for path, _ in pytree.tree_flatten_with_path(tree)[0]]


def _type_of(node: torch.fx.Node, name: str) -> TensorType:
    value = node.meta.get("val")
    source = place_of(node)
    if not isinstance(value, torch.Tensor):
        raise failure(
            Stage.IMPORT,
            f"{name} returns {node.name}, a number computed from tensors; return a tensor of no dimension",
            source=source,
        )
    if not all(isinstance(size, int) for size in value.shape):
        raise failure(
            Stage.IMPORT,
            f"{name} has a tensor of {tuple(value.shape)}, whose size depends on values; code is compiled for"
            " sizes that are known",
            op=name_of(node),
            source=source,
        )
    try:
        return type_of(value)
    except UsageError as error:
        raise failure(
            Stage.IMPORT, f"{name}: {node.name}: {error}", op=name_of(node), source=source
        ) from error


def name_of(node: torch.fx.Node) -> str | None:
    """Name the operation of a node, or what it was made of, as torch does, without ``.default``."""
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        node = node.args[0]
    asked = node.meta.get("original_aten") or node.target
    return str(asked).removesuffix(".default") if node.op == "call_function" else None


def operators_by_line(graph: torch.fx.Graph) -> dict[str, tuple[str, ...]]:
    """Give the operations of each line of the model, as PyTorch was asked for them; those of no line under ``""``."""
    found: dict[str, dict[str, None]] = {}
    for node in graph.nodes:
        if (name := name_of(node)) is not None:
            found.setdefault(place_of(node) or "", {})[name] = None
    return {line: tuple(operators) for line, operators in found.items()}


# --- the graph --------------------------------------------------------------------------------------


def make_plain(
    graph: torch.fx.Graph, inputs: Inputs, results: Sequence[torch.fx.Node], name: str, *, report: bool
) -> tuple[Check, ...]:
    """Leave in ``graph`` only tensors: those of ``inputs`` its placeholders, ``results`` what it returns.

    Operations that compute nothing but empty tensors become empty tensors (torch-mlir fails on some of them), what is
    one known number everywhere becomes that, indices and divisors become safe, what torch-mlir does not do right is
    rewritten, assertions about tensors' metadata go, and each node's stack trace shrinks to the model's own innermost
    line, which becomes the location of what is made from it.

    Args:
        graph: That of a decomposed program.
        inputs: Its inputs.
        results: The nodes of what it returns.
        name: What messages call the model.
        report: Whether to add one result more that says which check failed, where there is something to check.

    Returns:
        The checks; without any there is no such result.

    Raises:
        ModelImportError: an operation is refused by name.
    """
    (output,) = (node for node in graph.nodes if node.op == "output")
    output.args = (tuple(results),)
    for node in list(graph.nodes):
        if node.op == "call_function" and not node.users and _is_assertion(node):
            graph.erase_node(node)
        elif node.op == "call_function" and _is_empty(node.meta.get("val")):
            _replace_by_empty(graph, node)
    graph.eliminate_dead_code()
    _refuse(graph, name)
    constants = Constants(
        {
            node: value
            for node, value in zip(inputs.nodes, inputs.values, strict=True)
            if node in inputs.known and value is not None
        }
    )
    fold_constants(graph, constants)
    code, checks = add_checks(graph, constants, report=report)
    if code is not None:
        output.args = ((*output.args[0], code),)  # type: ignore[misc]  # the tuple that was put there
    rewrite_for_torch_mlir(graph)
    widen_narrow_integers(graph)
    graph.eliminate_dead_code()
    for node in list(graph.nodes):
        if node.op == "placeholder" and node not in inputs.nodes:
            node.replace_all_uses_with(None)  # pyright: ignore[reportArgumentType] - an unused None, or nothing
            graph.erase_node(node)
        _shrink_trace(node)
    graph.lint()
    return checks


def _refuse(graph: torch.fx.Graph, name: str) -> None:
    """Refuse by name what is not compiled right, and tensors of a type that is none of :class:`Element`."""
    for node in graph.nodes:
        said = refusal_of(node)
        for value in pytree.tree_leaves(node.meta.get("val")) if node.op == "call_function" else ():
            try:
                if isinstance(value, torch.Tensor):
                    Element.from_torch(value.dtype)
            except UsageError as error:
                said = said or str(error)
        if said:
            text = f"{name} has an operation that is not compiled: {said}"
            raise failure(Stage.IMPORT, text, op=name_of(node), source=place_of(node))


def _is_assertion(node: torch.fx.Node) -> bool:
    return "_assert" in str(node.target) or "sym_constrain" in str(node.target)


def _is_empty(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and any(
        isinstance(size, int) and size == 0 for size in value.shape
    )


def _replace_by_empty(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    value = node.meta["val"]
    with graph.inserting_before(node):
        empty = graph.call_function(
            torch.ops.aten.full.default, (list(value.shape), 0), {"dtype": value.dtype, "pin_memory": False}
        )
    empty.meta = dict(node.meta)
    node.replace_all_uses_with(empty)
    graph.erase_node(node)


def _shrink_trace(node: torch.fx.Node) -> None:
    source = place_of(node)
    if source:
        file, _, line = source.rpartition(":")
        # The form that torch-mlir's importer looks for.
        node.meta["stack_trace"] = f'File "{file}", line {line}, in forward'
