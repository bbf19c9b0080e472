"""``main`` in the LLVM dialect: whether it takes what will be passed, what it may rely on, and its threads.

Knows the calling convention of memrefs and nothing of what ``main`` computes.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from torchsched.bindings import Module, Operation, bindings
from torchsched.failures import Stage, failure
from torchsched.packing import ALIGNMENT
from torchsched.results import ENTRY
from torchsched.signature import TensorType

__all__ = ["INTERFACE", "SET_THREADS", "promise_memory", "set_threads"]

INTERFACE = f"_mlir_ciface_{ENTRY}"
"""The function beside ``main`` that takes descriptors by their addresses."""
SET_THREADS = "omp_set_num_threads"


def promise_memory(module: Module, types: Sequence[TensorType], shared: Container[int] = ()) -> None:
    """Check that ``main`` takes memrefs of ``types``, and say of each that it is aligned and shares no memory.

    Those at the positions in ``shared`` may share memory with each other, and are only aligned.
    Calls make sure of both. LLVM cannot know otherwise that a store to a result leaves the inputs as they are: a
    convolution in plain loops took 1.56 ms without this and 1.39 with it, sums of rows 47.6 µs and 41.5.

    Raises:
        ModelCompileError: ``main`` is missing, or has another list of arguments.
    """
    ir = bindings("ir")
    function = _function(module, ENTRY)
    _function(module, INTERFACE)
    found = [str(argument.type) for argument in function.regions[0].blocks[0].arguments]
    wanted: list[str] = []
    pointers: dict[int, int] = {}
    for place, type_ in enumerate(types):
        pointers[len(wanted) + 1] = (
            place  # the aligned pointer; the one before it is for giving the memory back
        )
        wanted += ["!llvm.ptr", "!llvm.ptr", "i64", *["i64"] * (2 * len(type_.shape))]
    if found != wanted:
        raise failure(
            Stage.COMPILE,
            f"{ENTRY} takes {len(found)} machine arguments, and memrefs of"
            f" {', '.join(map(str, types)) or 'nothing'} make {len(wanted)}; a step of the schedule changed its"
            " arguments",
        )
    with module.context:
        aligned = {"llvm.align": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), ALIGNMENT)}
        apart = ir.DictAttr.get({**aligned, "llvm.noalias": ir.UnitAttr.get()})
        together, nothing = ir.DictAttr.get(aligned), ir.DictAttr.get({})
        attributes = [
            nothing if index not in pointers else together if pointers[index] in shared else apart
            for index in range(len(wanted))
        ]
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)


def set_threads(module: Module, threads: int) -> None:
    """Let ``main`` set the number of threads itself.

    The runtime keeps it for each calling thread, and other compiled models in the process may want another one;
    a call in the code costs no Python in the timed call.
    """
    ir = bindings("ir")
    main = _function(module, ENTRY)
    with module.context, ir.Location.unknown(module.context):
        number = ir.IntegerType.get_signless(32)
        if not any(_name(each) == SET_THREADS for each in module.body.operations):
            module.body.append(ir.Operation.parse(f"llvm.func @{SET_THREADS}(i32)"))
        with ir.InsertionPoint.at_block_begin(main.regions[0].blocks[0]):
            value = ir.Operation.create(
                "llvm.mlir.constant",
                results=[number],
                attributes={"value": ir.IntegerAttr.get(number, threads)},
            )
            ir.Operation.create(
                "llvm.call",
                operands=[value.result],
                attributes={
                    "callee": ir.FlatSymbolRefAttr.get(SET_THREADS),
                    "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0]),
                    "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
                },
            )


def _function(module: Module, name: str) -> Operation:
    for operation in module.body.operations:
        if _name(operation) == name and operation.operation.name == "llvm.func":
            return operation
    raise failure(
        Stage.COMPILE,
        f"the module has no llvm.func {name!r}; lowering gives {ENTRY!r} and, for its llvm.emit_c_interface,"
        f" {INTERFACE!r}",
    )


def _name(operation: Operation) -> str:
    attributes = operation.attributes
    return attributes["sym_name"].value if "sym_name" in attributes else ""
