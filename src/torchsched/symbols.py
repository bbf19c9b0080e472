"""What a module in the LLVM dialect calls outside itself, and where in this process each of these names is.

Everything is looked up before machine code is linked: what the linker misses it reports on a file descriptor only,
and the code that called it would jump to nowhere.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from torchsched.bindings import Module, Operation, bindings
from torchsched.failures import Stage, failure
from torchsched.parallel import load_openmp

__all__ = ["External", "external_symbols", "resolve"]

_VECTOR_MATH = "_ZGV"
"""How names of vector functions begin, such as ``_ZGVeN16v_expf``; glibc keeps them in libmvec."""
_OPENMP = ("__kmpc_", "omp_", "kmp_")

_OPENMP_ENTRIES = """
global_thread_num fork_call fork_call_if serialized_parallel end_serialized_parallel
push_num_threads push_num_threads_strict push_proc_bind barrier cancel_barrier cancel cancellationpoint
for_static_init_4 for_static_init_4u for_static_init_8 for_static_init_8u for_static_fini
dispatch_init_4 dispatch_init_4u dispatch_init_8 dispatch_init_8u dispatch_deinit
dispatch_next_4 dispatch_next_4u dispatch_next_8 dispatch_next_8u
dispatch_fini_4 dispatch_fini_4u dispatch_fini_8 dispatch_fini_8u
reduce reduce_nowait end_reduce end_reduce_nowait ordered end_ordered
critical critical_with_hint end_critical master end_master masked end_masked single end_single copyprivate flush
omp_task_alloc omp_task omp_task_with_deps omp_task_begin_if0 omp_task_complete_if0 omp_taskwait omp_wait_deps
taskloop taskgroup end_taskgroup threadprivate_cached
"""
"""What LLVM calls as ``__kmpc_*`` for the ``omp`` dialect, which does not name it before it is translated."""

_CONVERSIONS = "__truncsfhf2 __truncdfhf2 __extendhfsf2 __extendhfdf2 __powisf2 __powidf2"
"""What LLVM calls where the processor has no instruction, f64 to f16 for one; libgcc has them."""

_PROGRAMS_OWN = ("libm.so.6", "libc.so.6")
"""Looked at before the process as a whole, which may hold other libraries' functions of the same names."""
_ALLOCATION = frozenset({"malloc", "free", "calloc", "realloc", "aligned_alloc", "posix_memalign"})
"""Taken from the process as a whole, so that another allocator that was preloaded stays in use."""


@dataclass(frozen=True, slots=True)
class External:
    """What a module needs from outside itself."""

    names: frozenset[str]
    openmp: bool
    """Whether it has parallel regions of the ``omp`` dialect."""


def external_symbols(module: Module) -> External:
    """Find the functions and globals that are declared, used, and not defined in ``module``."""
    ir = bindings("ir")
    declared: set[str] = set()
    for operation in module.body.operations:
        if _is_declaration(operation.operation):
            declared.add(ir.StringAttr(operation.attributes["sym_name"]).value)
    used: set[str] = set()
    parallel = False

    def look(operation: Operation) -> object:
        nonlocal parallel
        name = operation.name
        if name.startswith("omp."):
            parallel = True
        attribute = _REFERENCES.get(name)
        if attribute is not None and attribute in operation.attributes:
            used.add(ir.FlatSymbolRefAttr(operation.attributes[attribute]).value)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return External(frozenset(name for name in declared & used if not name.startswith("llvm.")), parallel)


_REFERENCES = {"llvm.call": "callee", "llvm.invoke": "callee", "llvm.mlir.addressof": "global_name"}
"""Operations that refer to a symbol, and the attribute that holds its name."""


def _is_declaration(operation: Operation) -> bool:
    if operation.name == "llvm.func":
        return len(operation.regions[0].blocks) == 0
    return (
        operation.name == "llvm.mlir.global"
        and "value" not in operation.attributes
        and len(operation.regions[0].blocks) == 0
    )


def resolve(external: External) -> dict[str, int]:
    """Give the address of everything that ``external`` may need; libraries are loaded as they are needed.

    Raises:
        ModelCompileError: a name that no library here has.
        UnavailableError: parallel code, and no OpenMP runtime.
    """
    found: dict[str, int] = {}
    missing: list[str] = []
    for name in sorted(external.names):
        address = _address(name)
        if address is None:
            missing.append(name)
        else:
            found[name] = address
    if missing:
        raise failure(
            Stage.COMPILE,
            f"the code calls {_listed(missing)}, which this process and the libraries for compiled code do not have;"
            f" {_advice(missing)}",
        )
    if external.openmp:
        found.update(_all_of(load_openmp().library, [f"__kmpc_{name}" for name in _OPENMP_ENTRIES.split()]))
    if (compiler_runtime := _library("libgcc_s.so.1")) is not None:
        found.update(_all_of(compiler_runtime, _CONVERSIONS.split()))
    return found


def _address(name: str) -> int | None:
    if name.startswith(_OPENMP):
        return _in(load_openmp().library, name)
    if name.startswith(_VECTOR_MATH) and (vector_math := _library("libmvec.so.1")) is not None:
        return _in(vector_math, name)
    first = () if name in _ALLOCATION else _PROGRAMS_OWN
    for library in (*map(_library, first), _library(None)):
        if library is not None and (address := _in(library, name)) is not None:
            return address
    return None


@lru_cache(maxsize=8)
def _library(name: str | None) -> ctypes.CDLL | None:
    """Load a library, or give the process itself for None."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _in(library: ctypes.CDLL, name: str) -> int | None:
    try:
        function = getattr(library, name)
    except AttributeError:
        return None
    return ctypes.cast(function, ctypes.c_void_p).value


def _all_of(library: ctypes.CDLL, names: Iterable[str]) -> dict[str, int]:
    return {name: address for name in names if (address := _in(library, name)) is not None}


def _listed(names: list[str], shown: int = 6) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(repr(name) for name in names[:shown]) + more


def _advice(missing: list[str]) -> str:
    if any(name.startswith(_VECTOR_MATH) for name in missing):
        return "vector functions need glibc's libmvec (2.35 for most): use a schedule without them"
    if any(
        "memrefCopy" in name or name.startswith(("mlirAsync", "printMemref", "rtclock")) for name in missing
    ):
        return (
            "these belong to MLIR's runner libraries, which torch-mlir lacks: lower what calls them to loops"
        )
    return "the schedule must lower what calls it, or a library that has it must be loaded first"
