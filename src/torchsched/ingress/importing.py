"""From an exported program to linalg on tensors: the graph made plain, then torch-mlir's importer and its passes.

Knows torch's graphs and torch-mlir; what happens to the module afterwards is the schedule's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchsched.bindings import Context, Module, bindings
from torchsched.failures import Stage, captured_stderr, failure, op_in, source_in
from torchsched.ingress.exporting import Exported, export_program, place_of
from torchsched.ingress.functions import Functions
from torchsched.ingress.imported import Imported, InputTree, OutputTree
from torchsched.ingress.mending import mend
from torchsched.ingress.program import make_plain, name_of, operators_by_line, read_inputs, read_outputs
from torchsched.results import ENTRY, entry_of
from torchsched.signature import CHECKED, Signature

__all__ = ["import_graph", "import_model"]


def import_model(
    model: torch.nn.Module, inputs: Sequence[Any], *, training: bool = False, name: str | None = None
) -> Imported:
    """Import ``model`` for inputs of these types.

    Its parameters, buffers and other tensors become arguments, where the model reads them. What it writes, be it
    buffers (as batch norm does in training mode), its own tensors or an input, becomes results that come first.

    Args:
        model: The model; it is left as it was.
        inputs: What ``forward`` takes: tensors, and other values, which are built into the module.
        training: Whether it is imported in training mode.
        name: What messages call it; its class's name if None.

    Raises:
        ModelImportError: it cannot be exported or imported; says the operation and the line where it can.
        UnavailableError: torch-mlir is not installed.
    """
    name = name or type(model).__name__
    exported = export_program(model, inputs, training=training, name=name)
    return _import_exported(exported, name)


def import_graph(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, checks: bool = True
) -> Imported:
    """Import what ``torch.compile`` hands to a backend.

    There is one argument for each placeholder that is a tensor, in the placeholders' order and under their names:
    parameters among them stand where the graph first uses them, so bind by that order, with
    ``imported.arguments(what the backend's function is called with)``. The results are the graph's outputs, and
    :meth:`Imported.assemble` gives them with what is no tensor. The graph stays in the mode it was traced in.
    Symbolic sizes become the numbers they stand for; asking for them makes torch.compile guard on them.

    Args:
        graph: The graph.
        example_inputs: What it is called with.
        checks: Whether calls report an index out of range; those of a backward graph were looked at before.

    Raises:
        ModelImportError: it cannot be imported; says the operation and the line where it can.
    """
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    exported = export_program(graph, example_inputs, training=graph.training, name="the graph")
    return _import_exported(exported, "the graph", names=names, report=checks)


def _import_exported(
    exported: Exported, name: str, *, names: Sequence[str] | None = None, report: bool = True
) -> Imported:
    program = exported.program
    inputs = read_inputs(exported, name, names)
    outputs = read_outputs(program, inputs, name)
    operators = operators_by_line(program.graph)
    checks = make_plain(program.graph, inputs, outputs.nodes, name, report=report)
    context, module = _to_linalg(program.graph_module, name)
    mend(module)
    results = (*outputs.results, CHECKED) if checks else outputs.results
    signature = Signature(inputs.arguments, results, tuple(each.message for each in checks))
    _require_types(module, signature, name)
    call = program.call_spec
    return Imported(
        name,
        context,
        module,
        signature,
        inputs.values,
        InputTree(call.in_spec, inputs.leaves),
        OutputTree(call.out_spec, outputs.leaves),
        operators,
    )


_TO_TORCH = (
    "builtin.module(func.func(torch-match-quantized-custom-ops),"
    "torchdynamo-export-to-torch-backend-pipeline{extra-library=})"
)
_TO_LINALG = "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=true})"
"""What ``torch_mlir.fx.export_and_import`` runs. It is not called itself because it answers a failure by writing
the module to a file of one fixed name, which runs at the same time overwrite."""
_VERIFY = "torch-verify-linalg-on-tensors-backend-contract"
"""The last step of the second pipeline; it allows no call, so it comes after those have been inlined."""


def _to_linalg(graph: torch.fx.GraphModule, name: str) -> tuple[Context, Module]:
    context = bindings("ir").Context()
    bindings("dialects.torch").register_dialect(context)
    functions = Functions(context)
    try:
        return context, _translated(graph, context, functions)
    except _RefusedError as error:
        op, source = _at_fault(graph, str(error))
        raise failure(
            Stage.IMPORT,
            f"torch-mlir cannot import {name} ({type(error.__cause__).__name__})",
            diagnostics=str(error),
            op=op,
            source=source,
        ) from error.__cause__


class _RefusedError(Exception):
    """What torch-mlir says of a graph that it does not take."""


def _translated(graph: torch.fx.GraphModule, context: Context, functions: Functions) -> Module:
    passes = bindings("passmanager")
    importer = bindings("extras.fx_importer").FxImporter(
        context=context, graph_node_importer_cls=functions.importer_class()
    )
    module = importer.module
    with captured_stderr() as written:
        try:
            importer.import_graph_module(graph, func_name=ENTRY)
            with context:
                lowering = str(passes.PassManager.parse(_TO_LINALG)).replace(f",{_VERIFY}", "")
                for pipeline in (_TO_TORCH, lowering):
                    passes.PassManager.parse(pipeline).run(module.operation)
                functions.define(module)
                passes.PassManager.parse(f"builtin.module(inline,symbol-dce,{_VERIFY})").run(module.operation)
        except Exception as error:
            raise _RefusedError(f"{error}\n{written.take()}".strip()) from error
    return module


def _at_fault(graph: torch.fx.GraphModule, said: str) -> tuple[str | None, str | None]:
    """Name the operation that torch-mlir stopped at, and its line in the model.

    Of what it says only the location is sure: the operation may be a number that another one is given
    (``constant.int``), or what it was made into (``tensor.cast``), and many share a line or have none. So it is
    asked once more, with a line for each node. Where even then it gives none, the shortest beginning of the graph
    that it refuses ends with the node.
    """
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    before = [node.meta.get("stack_trace") for node in nodes]
    try:
        for number, node in enumerate(nodes):
            node.meta["stack_trace"] = f'File "{_NODES}", line {number + 1}, in forward'
        said = _said_of(graph) or said
    finally:
        for node, trace in zip(nodes, before, strict=True):
            node.meta["stack_trace"] = trace
    file, _, line = (source_in(said) or "").rpartition(":")
    count = int(line) if file == _NODES else 0
    if not nodes or (not count and (op_in(said) or "").startswith("aten.")):
        return None, None
    if not count:
        taken, count = 0, len(nodes)
        while count - taken > 1:
            middle = (taken + count) // 2
            if _said_of(_beginning(graph, nodes[:middle])):
                count = middle
            else:
                taken = middle
    return name_of(nodes[count - 1]), place_of(nodes[count - 1])


def _said_of(graph: torch.fx.GraphModule) -> str:
    """Give what torch-mlir says of a graph that it refuses, and nothing of another."""
    context = bindings("ir").Context()
    bindings("dialects.torch").register_dialect(context)
    try:
        _translated(graph, context, Functions(context))
    except _RefusedError as error:
        return str(error)
    return ""


def _beginning(graph: torch.fx.GraphModule, nodes: Sequence[torch.fx.Node]) -> torch.fx.GraphModule:
    """Give the graph that computes ``nodes``, and returns those that no other of them reads."""
    kept, made = torch.fx.Graph(), {}
    for node in graph.graph.nodes:
        if node.op != "output" and (node.op != "call_function" or node in nodes):
            made[node] = kept.node_copy(node, made.__getitem__)
    ends = [
        made[each]
        for each in nodes
        if not made[each].users and isinstance(each.meta.get("val"), torch.Tensor)
    ]
    kept.output(tuple(ends))
    return torch.fx.GraphModule(graph, kept)


_NODES = "/nodes.py"
"""The file of which each line is a node. No file is of this name: it is the root's."""


def _require_types(module: Module, signature: Signature, name: str) -> None:
    """Check that torch-mlir made of each tensor what the signature says: later stages go by the signature."""
    kind = entry_of(module).type
    for what, found, wanted in (
        ("arguments", kind.inputs, [each.type.mlir for each in signature.arguments]),
        ("results", kind.results, [each.type.mlir for each in signature.results]),
    ):
        if [str(each) for each in found] != wanted:
            raise failure(
                Stage.IMPORT,
                f"torch-mlir gave {name} the {what} ({', '.join(map(str, found))}), and PyTorch has"
                f" ({', '.join(wanted)})",
            )
