"""Machine code from a lowered module, and calls of it: compile once, bind tensors, call without Python in between.

Knows neither the schedule nor the model. Who compiles what nobody has tried may do so in a process of its own: LLVM
aborts on code that it cannot select, and wrong code can crash.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelmark.errors import UsageError
from torchsched import dumping
from torchsched.bindings import bindings
from torchsched.entry import INTERFACE, SET_THREADS, promise_memory, set_threads
from torchsched.failures import Stage, captured_stderr, failure
from torchsched.heap import keep_large_blocks
from torchsched.in_place import allowed
from torchsched.packing import Slot, Words, is_apart, require_apart, require_count, require_fits
from torchsched.signature import Signature, TensorType
from torchsched.symbols import External, external_symbols, resolve

if TYPE_CHECKING:
    import torch

    from torchsched.lowering import Lowered

__all__ = ["OPTIMISE", "Bound", "Compiled", "compile_lowered"]

OPTIMISE = 2
"""LLVM's level where nobody names one. The schedules have unrolled and vectorised already: on two threads a net of 18
products compiled in 1.2 s, and in 10.2 s at level 3; of ten kernels level 3 made none more than 8 % faster."""

_FOREIGN = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def compile_lowered(lowered: Lowered, *, optimise: int | None = None) -> Compiled:
    """Make machine code of a module in the LLVM dialect.

    Args:
        lowered: What lowering gave. Its module gets a call that sets the number of threads, if it is parallel.
        optimise: LLVM's level, 0 to 3; :data:`OPTIMISE` if None.

    Raises:
        ModelCompileError: LLVM refused the module, or the code calls what does not exist; it names that.
        UnavailableError: parallel code, and no OpenMP runtime.
    """
    optimise = OPTIMISE if optimise is None else optimise
    if optimise not in range(4):
        raise UsageError(f"optimise={optimise!r}: LLVM has the levels 0, 1, 2 and 3")
    keep_large_blocks()
    begin = time.perf_counter()
    signature = lowered.signature
    types = [each.type for each in (*signature.arguments, *signature.results)]
    shared = {each for pair in allowed(lowered.module) for each in pair}
    promise_memory(lowered.module, [*types, *lowered.workspaces], shared)
    engine, function = _link(lowered, optimise)
    return Compiled(lowered, _Code(engine, function), time.perf_counter() - begin)


def _link(lowered: Lowered, optimise: int) -> tuple[Any, Callable[[int], None]]:
    """Make the engine and give its entry as a foreign function."""
    engines, module = bindings("execution_engine"), lowered.module
    with module.context:
        external = external_symbols(module)
        if external.openmp:
            set_threads(module, lowered.threads)
            external = External(external.names | {SET_THREADS}, openmp=True)
        addresses = resolve(external)
        with captured_stderr() as said:
            try:
                engine = engines.ExecutionEngine(module, opt_level=optimise)
                for name, address in addresses.items():
                    engine.raw_register_runtime(name, ctypes.c_void_p(address))
                # Linking happens here; LLVM says what it misses on descriptor 2, and the address is nothing.
                entry = engine.raw_lookup(INTERFACE)
            except RuntimeError as error:
                raise failure(
                    Stage.COMPILE, f"LLVM did not take the module: {error}", diagnostics=said.take()
                ) from error
            if not entry:
                raise failure(
                    Stage.COMPILE,
                    f"the machine code could not be linked, or has no {INTERFACE!r}",
                    diagnostics=said.take(),
                )
    return engine, _FOREIGN(entry)


class _Code:
    """The engine and its entry; whoever may still call the entry holds this, so that the code stays."""

    __slots__ = ("__weakref__", "engine", "function")

    def __init__(self, engine: Any, function: Callable[[int], None]) -> None:
        self.engine, self.function = engine, function


class _Frame:
    """What one call in flight needs for itself: the packed pointers, and workspaces."""

    __slots__ = ("_spaces", "code", "words")

    def __init__(self, code: _Code, slots: Sequence[Slot], spaces: Sequence[Slot]) -> None:
        self.code = code
        self.words = Words([slot.type for slot in (*slots, *spaces)])
        self._spaces = [slot.empty() for slot in spaces]
        for index, space in enumerate(self._spaces, start=len(slots)):
            self.words.point(index, space.data_ptr())

    def point(self, tensors: Sequence[torch.Tensor]) -> None:
        """Let the arguments and results be these."""
        for index, tensor in enumerate(tensors):
            self.words.point(index, tensor.data_ptr())


class Bound(functools.partial):
    """One call with everything in place: ``bound()`` is one foreign call and nothing else, and gives ``None``.

    It costs 0.14 µs beside the code itself, and ``bound.run()`` 0.20 (an empty function, one core of a Zen 5).
    The tensors and the code live as long as it does, also after the compiled model is closed. Two threads need two
    of them, since they may share neither results nor workspaces.
    """

    arguments: tuple[torch.Tensor, ...]
    results: tuple[torch.Tensor, ...]
    """What a call writes. A result that is an argument's new value is here too, and is not copied to it."""
    outputs: Any
    """What the model returns: a tensor, or a tuple of several or of none."""
    verdict: torch.Tensor | None
    """What a call has found of its indices and divisors; None where there is nothing to look at."""
    checks: tuple[str, ...]
    _frame: _Frame

    def run(self, *_: object) -> Any:
        """Call, and give what the model returns; what is passed is ignored, as all is bound.

        Raises:
            ModelRunError: an index was out of range, or a whole number was divided by zero.
        """
        self()
        if self.verdict is not None:
            _require_fine(self.verdict, self.checks)
        return self.outputs


def _require_fine(verdict: torch.Tensor, checks: Sequence[str]) -> None:
    if code := int(verdict):
        raise failure(Stage.RUN, f"{checks[code - 1]}; what the call gave is not to be used")


class Compiled:
    """A compiled model.

    Made by :func:`compile_lowered`. It is called like the model, with all arguments of its signature; who measures
    binds them first. Machine code, module and context are let go by :meth:`close`, or with the object.

    Attributes:
        signature: What it takes and gives.
        threads: How many threads it uses.
        workspaces: Memory that a call needs beside arguments and results; each ``Bound`` has its own.
        in_place: The arguments that a call writes where they lie, rather than into memory that it copies from.
        compile_s: Seconds that LLVM took.
    """

    def __init__(self, lowered: Lowered, code: _Code, compile_s: float) -> None:
        self.signature: Signature = lowered.signature
        self.threads: int = lowered.threads
        self.workspaces: tuple[TensorType, ...] = tuple(lowered.workspaces)
        self.compile_s = compile_s
        self._lowered: Lowered | None = lowered
        self._code: _Code | None = code
        self._arguments = [Slot(each.name, each.type) for each in self.signature.arguments]
        self._results = [Slot(each.name, each.type) for each in self.signature.results]
        self._spaces = [Slot(f"workspace {i}", each) for i, each in enumerate(self.workspaces)]
        self._writes = [
            (index, self.signature.index_of(result.writes))
            for index, result in enumerate(self.signature.results)
            if result.writes is not None
        ]
        self._in_place = {result: place for result, place in self._writes if place in lowered.in_place}
        self.in_place: frozenset[int] = frozenset(self._in_place.values())
        self._checked = len(self._results) - 1 if self.signature.checks else None
        self._outputs = [
            i for i, each in enumerate(self.signature.results) if each.writes is None and i != self._checked
        ]
        self._idle: list[_Frame] = []

    def bind(self, arguments: Sequence[torch.Tensor], results: Sequence[torch.Tensor] | None = None) -> Bound:
        """Check the tensors and pack them for any number of calls.

        Args:
            arguments: One for each argument of the signature, in its order.
            results: One for each result, to be written; allocated where left out.

        Raises:
            ModelRunError: a tensor that the code cannot take, or a result that shares memory.
        """
        results = [slot.empty() for slot in self._results] if results is None else results
        self._require(arguments, results)
        frame = self._new_frame()
        frame.point([*arguments, *results])
        bound = Bound(frame.code.function, frame.words.address)
        bound.arguments, bound.results = tuple(arguments), tuple(results)
        bound.outputs = self._given(results)
        bound.verdict = None if self._checked is None else results[self._checked]
        bound.checks = self.signature.checks
        bound._frame = frame
        return bound

    def __call__(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call with these arguments: give what the model returns, and write the arguments that it writes.

        Raises:
            ModelRunError: a tensor that the code cannot take, an index out of range, or a division by zero.
        """
        from torch.autograd.graph import increment_version

        require_count(arguments, self._arguments, "argument")
        for tensor, slot in zip(arguments, self._arguments, strict=True):
            require_fits(tensor, slot, "argument")
        results = self._destinations(arguments)
        try:
            frame = self._idle.pop()
        except IndexError:
            frame = self._new_frame()
        frame.point([*arguments, *results])
        frame.code.function(frame.words.address)
        if self._code is not None:
            self._idle.append(frame)
        if self._checked is not None:
            _require_fine(results[self._checked], self.signature.checks)
        for result, argument in self._writes:
            if results[result] is not arguments[argument]:
                arguments[argument].detach().copy_(results[result])
            elif not results[result].is_inference():
                increment_version(results[result])
        return tuple(results[index] for index in self._outputs)

    def dump_object(self, path: Path | str) -> Path:
        """Write the machine code as an object file, and give its path."""
        return dumping.dump_object(self._open_code().engine, Path(path))

    def assembly(self) -> str:
        """Give the machine code as text.

        Raises:
            UnavailableError: there is no program that disassembles.
        """
        return dumping.assembly(self._open_code().engine)

    @property
    def llvm_module(self) -> str:
        """The module that was compiled, in MLIR's LLVM dialect."""
        self._open_code()
        assert self._lowered is not None
        return str(self._lowered.module)

    @property
    def closed(self) -> bool:
        """Whether it can no longer be called."""
        return self._code is None

    def close(self) -> None:
        """Let go of machine code, module and context; what is bound keeps the code until it goes itself."""
        self._code = self._lowered = None
        self._idle.clear()

    def __enter__(self) -> Compiled:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_code(self) -> _Code:
        if self._code is None:
            raise failure(Stage.RUN, "this compiled model was closed; compile it again")
        return self._code

    def _new_frame(self) -> _Frame:
        return _Frame(self._open_code(), [*self._arguments, *self._results], self._spaces)

    def _destinations(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Give what each result is written to: the argument that it is to become, where the code may do that."""
        apart = {
            result: arguments[place]
            for result, place in self._in_place.items()
            if is_apart(arguments[place], [*arguments[:place], *arguments[place + 1 :]])
        }
        return [apart[index] if index in apart else slot.empty() for index, slot in enumerate(self._results)]

    def _given(self, results: Sequence[torch.Tensor]) -> Any:
        outputs = tuple(results[index] for index in self._outputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def _require(self, arguments: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        for tensors, slots, what in (
            (arguments, self._arguments, "argument"),
            (results, self._results, "result"),
        ):
            require_count(tensors, slots, what)
            for tensor, slot in zip(tensors, slots, strict=True):
                require_fits(tensor, slot, what)
        for tensor, slot in zip(results, self._results, strict=True):
            if tensor.requires_grad:
                raise failure(
                    Stage.RUN,
                    f"result {slot.name!r} requires grad; it takes a tensor that autograd does not follow",
                )
        names = [slot.name for slot in self._arguments]
        require_apart(
            [(slot.name, tensor) for slot, tensor in zip(self._results, results, strict=True)],
            list(zip(names, arguments, strict=True)),
        )
