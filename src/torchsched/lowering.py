"""Takes an imported module to the LLVM dialect, one step of the schedule after the other.

Knows the order and what to say when a step fails. What the steps do stands in the schedule and in
:mod:`torchsched.transforms`; machine code is :mod:`torchsched.execution`'s.

Each pass has a run of the pass manager to itself, so that a failure names its step and its line. That costs
nothing: 22 passes over a small net took 20 to 25 ms apart and 24 to 31 ms as one pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kernelmark.errors import KernelmarkError, ModelLoweringError
from torchsched.bindings import Context, Module, Operation, bindings
from torchsched.descriptors.functions import find_function
from torchsched.descriptors.parameters import fill_in_text
from torchsched.descriptors.passes import check_passes
from torchsched.descriptors.schedule import Schedule
from torchsched.descriptors.steps import PassStep, Step, TransformFileStep, TransformStep
from torchsched.failures import Stage, captured_stderr, failure, source_in
from torchsched.in_place import allowed
from torchsched.interpreter import TransformError, apply_sequence
from torchsched.results import results_to_arguments, unread_arguments
from torchsched.signature import Signature, TensorType
from torchsched.targets import Target
from torchsched.workspaces import workspaces_of

if TYPE_CHECKING:
    from torchsched.ingress.imported import Imported

__all__ = ["RESULTS_STEP", "Lowered", "Observer", "OnStep", "lower", "unheard"]

Observer = Callable[[str, Module], object]
"""Called after each step with the step's name and the module as it is then; to print each takes a fifth of it all."""

OnStep = Callable[[str], object]
"""Called before each stage and step with what it is: what is said last is where a compiler hangs."""


def unheard(_: str) -> None:
    """Take a step's name and do nothing."""


RESULTS_STEP = "results to arguments"
"""What the step that every schedule begins with is called."""

_LEFT = frozenset({"builtin", "llvm", "omp"})
"""The dialects of a module that LLVM can take."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A module in the LLVM dialect; ``main`` takes the arguments, then the results, then the workspaces."""

    context: Context = field(repr=False)
    module: Module = field(repr=False)
    signature: Signature
    threads: int
    """How many threads the code uses; 1 where the schedule made no parallel code."""
    workspaces: tuple[TensorType, ...] = ()
    """Memory that a call needs beside arguments and results."""
    in_place: frozenset[int] = frozenset()
    """The arguments whose own memory the code may write their new values to."""


def lower(
    imported: Imported,
    schedule: Schedule,
    target: Target,
    *,
    observer: Observer | None = None,
    on_step: OnStep = unheard,
) -> Lowered:
    """Lower a module; the imported one is rewritten in place.

    Args:
        imported: What ingress gave.
        schedule: The steps, resolved for ``target``.
        target: What the code is for.
        observer: Gets the module after each step; the next one rewrites it.
        on_step: Gets each step before it is taken.

    Raises:
        ScheduleError: MLIR does not know a pass or its options; nothing was rewritten.
        ModelLoweringError: a step refused the module, or something is left that LLVM cannot take; it names the
            step, its file and line, and the operation with its line in the model where MLIR says them.
    """
    check_passes(schedule.steps)
    module = imported.module
    results_to_arguments(module, imported.signature)
    unread = unread_arguments(module)
    tell = _tell(observer, module)
    tell(RESULTS_STEP)
    try:
        for step in schedule.steps:
            if _holds(step, module):
                on_step(f"{Stage.LOWER}: {_said_of(step)}")
                _run(step, module, target)
                tell(step.name)
        operations = _operations(module)
        _require_lowered(operations, module, schedule)
    except ModelLoweringError as error:
        raise _named(error, imported) from error.__cause__
    return Lowered(
        context=imported.context,
        module=module,
        signature=imported.signature,
        threads=target.code_threads if any(name.startswith("omp.") for name in operations) else 1,
        workspaces=workspaces_of(module),
        in_place=unread | {argument for argument, _ in allowed(module)},
    )


def _tell(observer: Observer | None, module: Module) -> Callable[[str], object]:
    if observer is None:
        return lambda name: None
    return lambda name: observer(name, module)


def _run(step: Step, module: Module, target: Target) -> None:
    """Take one step; whatever it raises becomes an error that names it."""
    try:
        if isinstance(step, PassStep):
            _run_pass(step.text, module)
        elif isinstance(step, TransformStep):
            find_function(step.function)(module, target=target, **step.parameters)
        else:
            apply_sequence(module, _text_of(step))
        if not isinstance(step, PassStep):
            _verify(module)
    except ModelLoweringError as error:
        text = str(error).removeprefix(f"{error.source}: ").removeprefix(f"{Stage.LOWER}: ")
        message = f"{_said_of(step)}: {text}{step.origin.included}"
        raise failure(Stage.LOWER, message, op=error.op, source=error.source) from error
    except KernelmarkError:
        raise
    except _PassError as error:
        what = "failed" if isinstance(step, PassStep) else "left a module that is not valid"
        raise _failed(step, what, str(error)) from error.__cause__
    except TransformError as error:
        line = f" (line {error.line} of the text)" if error.line and isinstance(step, TransformStep) else ""
        raise _failed(step, f"stopped{line}", str(error), line=error.line) from error
    except Exception as error:
        raise _failed(step, f"raised {type(error).__name__}", str(error)) from error


class _PassError(Exception):
    """What MLIR says of a pass that failed, or of a module that is not valid."""


def _verify(module: Module) -> None:
    """Look at what a transform left, as the pass manager does after each pass: the next step is not to blame."""
    try:
        module.operation.verify()
    except bindings("ir").MLIRError as error:
        raise _PassError(str(error)) from error


def _run_pass(text: str, module: Module) -> None:
    ir, passmanager = bindings("ir"), bindings("passmanager")
    with module.context, captured_stderr() as said:
        manager = passmanager.PassManager.parse(f"builtin.module({text})")
        try:
            manager.run(module.operation)
        except ir.MLIRError as error:
            raise _PassError("\n".join(part for part in (str(error), said.take().strip()) if part)) from error


def _text_of(step: TransformFileStep) -> str:
    text = Path(step.path).read_text(encoding="utf-8")
    return fill_in_text(text, step.parameters, KeyError, braced=True)


def _failed(step: Step, what: str, diagnostics: str, *, line: int | None = None) -> ModelLoweringError:
    where = f"{step.path}:{line}: " if isinstance(step, TransformFileStep) and line else ""
    message = f"{where}{_said_of(step)} {what}{step.origin.included}"
    error = failure(Stage.LOWER, message, diagnostics=diagnostics)
    assert isinstance(error, ModelLoweringError)
    return error


def _said_of(step: Step) -> str:
    return f"{step.kind} {step.name!r} ({step.origin.where})"


def _holds(step: Step, module: Module) -> bool:
    """Whether the module holds what the step asks for."""
    asked = [each for each in step.when if each.of_module]
    if not asked:
        return True
    dialects = frozenset(name.partition(".")[0] for name in _operations(module))
    return all(each.holds(dialects) for each in asked)


_OPERATION = re.compile(r'^\s*(?:%[^=\n]*= )?"?([a-z_]\w*\.[a-z]\w*)', re.MULTILINE)


def _operations(module: Module) -> frozenset[str]:
    """Give the names of the operations that the module holds."""
    # From its text: a walk in Python takes 40 µs an operation, and a net in the LLVM dialect has 100,000.
    text = module.operation.get_asm(large_elements_limit=8)
    # Large constants stand in a section of their own after the module; their names look like operations.
    return frozenset(_OPERATION.findall(text.partition("\n{-#")[0]))


def _require_lowered(operations: frozenset[str], module: Module, schedule: Schedule) -> None:
    """Refuse what LLVM cannot take, and say what it is: translating it would only say that it is not registered."""
    left = sorted(name for name in operations if name.partition(".")[0] not in _LEFT)
    if left:
        raise failure(
            Stage.LOWER,
            f"after the last step of {schedule} the module still holds {', '.join(left[:6])}"
            f"{' and others' if len(left) > 6 else ''}; a schedule ends in the LLVM dialect, as with"
            " '- include: ../lower.yaml'",
            op=left[0],
            source=_place_of(left[0], module.operation),
        )


def _place_of(name: str, operation: Operation) -> str | None:
    """Find the line in the model of the first operation of this name."""
    for region in operation.regions:
        for block in region.blocks:
            for each in block.operations:
                inner = each.operation
                found = source_in(str(inner.location)) if inner.name == name else _place_of(name, inner)
                if found:
                    return found
    return None


def _named(error: ModelLoweringError, imported: Imported) -> ModelLoweringError:
    """Name what the model asked for in the line of which a step cannot lower what it became."""
    operators = imported.operators.get(error.source or "", ())
    if not operators or not error.op:
        return error
    shown = f"{', '.join(operators[:6])}{' and others' if len(operators) > 6 else ''}"
    text = str(error).removeprefix(f"{error.source}: ")
    return ModelLoweringError(f"{text}\nit was made for: {shown}", op=error.op, source=error.source)
