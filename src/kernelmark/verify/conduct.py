"""What an implementation may not do to the process that it is judged in, found by comparing before and after.

Taken before the candidate is imported: the functions of torch and of the judge, torch's settings, the threads, the
problem's own model. Everything that both share would otherwise be the candidate's to change: a slower baseline is
as good as a faster kernel. It says what happened and decides nothing.
"""

from __future__ import annotations

import builtins
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelmark.errors import VerificationError
from kernelmark.text import counted, first_line
from kernelmark.verify.guarding import Guard

__all__ = ["Conduct", "settings"]

_WATCHED = (
    *(
        "torch",
        "torch.functional",
        "torch.nn",
        "torch.cuda",
        "torch.cpu",
        "torch.autograd",
        "torch.accelerator",
    ),
    *(
        "torch.random",
        "torch.testing",
        "torch._tensor",
        "torch._ops",
        "torch.backends",
        "torch.utils._pytree",
    ),
    *("numpy", "builtins", "ctypes", "math", "random", "hashlib", "json", "statistics", "kernelmark"),
    *("time", "gc", "os", "threading", "_thread", "inspect", "functools"),
)
"""Modules whose functions and classes may not be replaced, with those below them but for torch's own: there the
compilers and optimisers rebind names of their own when they are first used."""
_WITH_ALL_BELOW = tuple(f"{name}." for name in _WATCHED if name != "torch")
_CLASSES_OF = ("torch", "torch.nn", "torch.cuda", "torch.autograd", "kernelmark", "threading", "random")
"""Packages whose classes are looked into: their methods may not be replaced either."""

_LISTED = 3
_WAIT_S = 0.06
_WORKED_NS = 30_000_000
"""Half of the wait: the threads of an OpenMP that came with the candidate spin for some 10 ms after a call, and then
sleep; torch's own are not counted."""
_POOL_ELEMENTS = 1 << 20
"""Enough for torch to use all of its threads."""


class Conduct(Guard):
    """How the process was before the candidate came into it; as a guard, it finds threads that calls left or started.

    Args:
        model: The problem's model, which may not be changed either.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        import torch._dynamo  # wraps torch.manual_seed and others when it is imported first, which is nobody's doing

        self._started, self._counting = _count_starts(), False
        self._model = model
        self._weights = _versions(model)
        self._functions = {owner: dict(_callables(owner)) for owner in _owners(model)}
        self._names = {owner: frozenset(vars(owner)) for owner in self._functions}
        self._settings = settings()
        torch.ones(_POOL_ELEMENTS).mul_(2)  # so that torch's threads are there, and known
        self._tasks = frozenset(_tasks())
        self._threads = set(sys._current_frames())

    def calls_begin(self) -> None:
        """Count threads from here on: a call that was made before may start none."""
        self._started[0], self._counting = 0, True

    def breach(self) -> str:
        """Say which threads calls left or started; blank for none. Costs some microseconds."""
        left = set(sys._current_frames()) - self._threads
        if left and (left := left - _of_compilers()):
            return (
                f"left {counted(len(left), 'thread')} behind that {_verb(len(left))} still alive when its call"
                " had returned; what goes on after a call is not in its time, so join it before returning"
            )
        if self._counting and self._started[0]:
            return (
                f"started {counted(self._started[0], 'thread')} while it was called; what goes on beside a"
                " call can end after it, so nothing vouches for its time"
            )
        return ""

    def exit(self, who: str) -> VerificationError | None:
        """Say which threads calls left or started."""
        breach = self.breach()
        return VerificationError(f"{who} {breach}") if breach else None

    def tampering(self) -> str:
        """Say what was replaced or set that does not belong to the candidate; blank for nothing."""
        told = [*self._replaced(), *self._set()]
        if _versions(self._model) != self._weights:
            told.append("the weights of the problem's own model were written")
        if not told:
            return ""
        more = f" and {len(told) - _LISTED} more" if len(told) > _LISTED else ""
        return (
            f"changed what it shares with its judge and with what it is compared with: {'; '.join(told[:_LISTED])}"
            f"{more}"
        )

    def after_call(self, call: Callable[[], Any], look: Callable[[Any], Any]) -> tuple[Any, str]:
        """Call once on the CPU and look at the result at once and a while later; give it, and what was not finished.

        Args:
            call: The call.
            look: Copies what it gave, in a form that compares equal where nothing changed.
        """
        given = call()
        first, before = look(given), _work_of_others(self._tasks)
        breach = self.breach()
        time.sleep(_WAIT_S)
        worked = _work_of_others(self._tasks) - before
        if not breach and look(given) != first:
            breach = "was not finished when its call had returned: the result went on changing after that"
        if not breach and worked > _WORKED_NS:
            breach = (
                f"was not finished when its call had returned: other threads worked {worked / 1e6:.0f} ms in the"
                f" {_WAIT_S * 1e3:.0f} ms after it"
            )
        return given, breach

    def _replaced(self) -> Iterator[str]:
        for owner, functions in self._functions.items():
            now = vars(owner)
            for name, value in functions.items():
                if now.get(name) is not value and not _is_of_dynamo(now.get(name)):
                    yield f"{_path_of(owner)}.{name} is now {_shown(now.get(name, 'gone'))}"
            for name in now.keys() - self._names[owner]:
                if callable(now[name]) and _hides(owner, name):
                    yield f"{_path_of(owner)}.{name} is now {_shown(now[name])}"

    def _set(self) -> Iterator[str]:
        now = settings()
        for name, before in self._settings.items():
            after = now.get(name)
            if isinstance(before, frozenset) and after != before:
                yield f"{name}: {', '.join(sorted((after or frozenset()) ^ before)[:_LISTED])}"
            elif after != before:
                yield f"{name} was {before} and is {after}"


# --- names ---------------------------------------------------------------------------------------------


def _owners(model: torch.nn.Module) -> Iterator[ModuleType | type]:
    """Give the modules and classes that are watched, each once."""
    seen: set[int] = set()
    for name, module in list(sys.modules.items()):
        if name not in _WATCHED and not name.startswith(_WITH_ALL_BELOW):
            continue
        if not isinstance(module, ModuleType) or id(module) in seen:
            continue
        seen.add(id(module))
        yield module
        for value in list(vars(module).values()):
            # by its type: some of torch's objects warn when an attribute of theirs is read
            if issubclass(type(value), type) and id(value) not in seen and _is_looked_into(value.__module__):
                seen.add(id(value))
                yield value
    for kind in {type(each) for each in model.modules()}:
        if id(kind) not in seen:
            seen.add(id(kind))
            yield kind


def _is_looked_into(home: object) -> bool:
    if not isinstance(home, str):
        return False
    return home in _CLASSES_OF or home.startswith(
        ("torch.nn.", "torch.cuda.", "torch.autograd.", "kernelmark.")
    )


def _callables(owner: ModuleType | type) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(owner).items()):
        if callable(value) or issubclass(type(value), staticmethod | classmethod | property):
            yield name, value


def _hides(owner: ModuleType | type, name: str) -> bool:
    """Whether a name that is new in ``owner`` is found before one that was there: a base's, or a built-in."""
    if isinstance(owner, type):
        return any(name in vars(base) for base in owner.__mro__[1:])
    return hasattr(builtins, name)


def _is_of_dynamo(value: object) -> bool:
    """Whether it is a function of torch's compiler, which wraps some of torch's own when it is first used."""
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename.startswith(_DYNAMO)


_DYNAMO = str(Path(torch.__file__).parent / "_dynamo")


def _path_of(owner: ModuleType | type) -> str:
    return f"{owner.__module__}.{owner.__qualname__}" if isinstance(owner, type) else owner.__name__


def _shown(value: object) -> str:
    home, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    return f"{home}.{name}" if name else repr(value)[:60]


# --- settings ------------------------------------------------------------------------------------------


def settings() -> dict[str, Any]:
    """Read what holds for the whole process and changes how fast, or how exactly, everything in it computes."""
    import torch.nn.modules.module as modules

    found: dict[str, Any] = {
        "torch.get_num_threads()": torch.get_num_threads(),
        "torch.get_num_interop_threads()": torch.get_num_interop_threads(),
        "torch.get_float32_matmul_precision()": _read(torch.get_float32_matmul_precision),
        "torch.get_default_dtype()": torch.get_default_dtype(),
        "torch.get_default_device()": torch.get_default_device(),
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.is_inference_mode_enabled()": torch.is_inference_mode_enabled(),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "the processors that the process may use": tuple(sorted(os.sched_getaffinity(0))),
        "the process's priority": os.getpriority(os.PRIO_PROCESS, 0),
        "sys.gettrace()": sys.gettrace(),
        "sys.getprofile()": sys.getprofile(),
        "sys.getswitchinterval()": sys.getswitchinterval(),
        **_of_dynamo(),
        "the global hooks of torch.nn": tuple(
            len(getattr(modules, name))
            for name in (
                "_global_forward_hooks",
                "_global_forward_pre_hooks",
                "_global_module_registration_hooks",
            )
            if hasattr(modules, name)
        ),
        "operators of torch were overridden": frozenset(
            each for each in getattr(torch.library, "_impls", ()) if str(each).startswith("aten/")
        ),
    }
    for name in _C_SETTINGS:
        if (read := getattr(torch._C, name, None)) is not None:
            found[f"torch._C.{name}()"] = _read(read)
    return found


def _read(setting: Callable[[], Any]) -> Any:
    """Read a setting; torch refuses to where its older and its newer names were used for it, which is an answer too."""
    try:
        return setting()
    except RuntimeError as error:
        return first_line(error)


def _of_dynamo() -> dict[str, Any]:
    """Read what decides whether a compiled function runs as it was compiled."""
    dynamo: Any = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return {}
    return {
        "torch.compiler's stance": str(getattr(dynamo.eval_frame, "_stance", "")),
        "torch._dynamo.config.disable": dynamo.config.disable,
    }


_C_SETTINGS = (
    "_get_cudnn_enabled",
    "_get_cudnn_allow_tf32",
    "_get_cublas_allow_tf32",
    "_get_cublas_allow_fp16_reduced_precision_reduction",
    "_get_cublas_allow_bf16_reduced_precision_reduction",
    "_get_mkldnn_enabled",
    "_get_flash_sdp_enabled",
    "_get_mem_efficient_sdp_enabled",
    "_get_math_sdp_enabled",
    "_len_torch_function_stack",
    "_len_torch_dispatch_stack",
)


def _versions(model: torch.nn.Module) -> tuple[int, ...]:
    """Give how often each parameter was written, and where it lies, and how many hooks each module has."""
    weights = [
        each for parameter in model.parameters() for each in (parameter._version, parameter.data_ptr())
    ]
    hooks = [
        len(module._forward_hooks) + len(module._forward_pre_hooks) + ("forward" in vars(module))
        for module in model.modules()
    ]
    return (*weights, *hooks)


# --- threads -------------------------------------------------------------------------------------------


def _count_starts() -> list[int]:
    """Count the threads that Python starts from now on; the count is in the list."""
    import _thread

    count, start = [0], _thread.start_new_thread

    def counted(*args: Any, **kwargs: Any) -> int:
        count[0] += 1
        return start(*args, **kwargs)

    _thread.start_new_thread = counted  # type: ignore[assignment]
    _thread.start_new = counted  # type: ignore[attr-defined]
    if hasattr(threading, "_start_new_thread"):
        threading._start_new_thread = counted  # type: ignore[attr-defined]
    return count


def _of_compilers() -> set[int]:
    """Give the threads of inductor's own pool, which wait for the next compilation, and of its subprocesses."""
    module: Any = sys.modules.get("torch._inductor.async_compile")
    pool = getattr(getattr(module, "AsyncCompile", None), "pool", None)
    idle = pool()._threads if pool is not None and pool.cache_info().currsize else ()
    home = str(Path(torch.__file__).parent / "_inductor")
    reading = {
        ident
        for ident, frame in sys._current_frames().items()
        if any(each.f_code.co_filename.startswith(home) for each in _stack(frame))
    }
    return {thread.ident for thread in idle} | reading


def _stack(frame: Any) -> Iterator[Any]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _tasks() -> Iterator[int]:
    return (int(task.name) for task in Path("/proc/self/task").glob("*"))


def _work_of_others(known: frozenset[int]) -> int:
    """Give how many nanoseconds the threads that are not ``known`` have been on a processor."""
    total = 0
    for task in _tasks():
        if task not in known:
            try:
                total += int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[0])
            except (OSError, ValueError, IndexError):  # it has ended, or the kernel does not tell
                continue
    return total


def _verb(number: int) -> str:
    return "was" if number == 1 else "were"
