"""What an implementation may not do to the process that it is judged in, found by comparing before and after; and
whether its work is done when its call has returned.

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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from traceback import walk_stack
from types import ModuleType
from typing import Any

import torch

from kernelmark.text import counted, first_line
from kernelmark.verify.guards import Guard, differing
from kernelmark.verify.structure import tensors, unreal

__all__ = ["Conduct", "Settings", "after_call_on_cuda"]

_WATCHED = (
    *("torch", "torch.functional", "torch.nn", "torch.cuda", "torch.cpu", "torch.autograd"),
    *("torch.accelerator", "torch.random", "torch.testing", "torch._tensor", "torch._ops", "torch.backends"),
    *("torch.utils._pytree", "numpy", "builtins", "ctypes", "math", "random", "hashlib", "json"),
    *("statistics", "kernelmark", "time", "gc", "os", "threading", "_thread", "inspect", "functools"),
)
"""Modules whose functions and classes may not be replaced, with those below them but for torch's own: there the
compilers and optimisers rebind names of their own when they are first used."""
_WITH_ALL_BELOW = tuple(f"{name}." for name in _WATCHED if name != "torch")
_CLASSES_OF = ("torch", "torch.nn", "torch.cuda", "torch.autograd", "kernelmark", "threading", "random")
_CLASSES_BELOW = ("torch.nn.", "torch.cuda.", "torch.autograd.", "kernelmark.")
"""Packages whose classes are looked into: their methods may not be replaced either."""

_LISTED = 3
_WAIT_S = 0.06
_WORKED_NS = 30_000_000
"""Half of the wait: the threads of an OpenMP that came with the candidate spin for some 10 ms after a call, and then
sleep; torch's own are not counted."""
_POOL_ELEMENTS = 1 << 20
"""Enough for torch to use all of its threads."""
_SLEEP_CYCLES = 40_000_000
"""20 ms at 2 GHz: longer than launching a call takes, also where it is one of hundreds of kernels."""
_TORCH = Path(torch.__file__).parent


@dataclass(slots=True)
class Settings(Guard):
    """What holds for the whole process, such as the number of threads, is for no implementation to change."""

    _before: Mapping[str, Any] = field(default_factory=lambda: _settings())

    def breach(self) -> str:
        """Name the first that has changed since the check began; the next is held against what it is now."""
        before, self._before = self._before, _settings()
        for name, value in before.items():
            now = self._before.get(name, value)
            # operators are registered where a library is first used, torch's own compiler among them
            if now != value and not isinstance(value, frozenset):
                return (
                    f"left {name} changed, from {value} to {now}: that holds for all that it is compared with;"
                    " let it put that back"
                )
        return ""


class Conduct(Guard):
    """How the process was before the candidate came into it; as a guard, it finds threads that calls left or started.

    Args:
        model: The problem's model, which may not be changed either.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        import torch._dynamo  # wraps torch.manual_seed and others when it is imported first, which is nobody's doing

        with suppress(ImportError):
            import tqdm

            tqdm.tqdm.monitor_interval = 0  # torch's compiler leaves a bar of it open on a GPU, with a thread
        self._started, self._counting = _count_starts(), False
        self._model, self._weights = model, _versions(model)
        self._names = {owner: dict(vars(owner)) for owner in _owners(model)}
        self._settings = _settings()
        torch.ones(_POOL_ELEMENTS).mul_(2)  # so that torch's threads are there, and known
        self._tasks = set(os.listdir("/proc/self/task"))
        self._threads = set(sys._current_frames())

    def calls_begin(self) -> None:
        """Count threads from here on: a call that was made before may start none."""
        self._started[0], self._counting = 0, True

    def breach(self) -> str:
        """Say which threads calls left or started; blank for none. Costs some microseconds."""
        left = set(sys._current_frames()) - self._threads
        if left and (left := left - _of_compilers()):
            verb = "was" if len(left) == 1 else "were"
            return (
                f"left {counted(len(left), 'thread')} behind that {verb} still alive when its call had returned;"
                " what goes on after a call is not in its time, so join it before returning"
            )
        if self._counting and self._started[0]:
            return (
                f"started {counted(self._started[0], 'thread')} while it was called; what goes on beside a"
                " call can end after it, so nothing vouches for its time"
            )
        return ""

    def tampering(self) -> str:
        """Say what was replaced or set that does not belong to the candidate; blank for nothing."""
        told = [*self._replaced(), *self._set()]
        if _versions(self._model) != self._weights:
            told.append("the weights of the problem's own model were written")
        more = f" and {len(told) - _LISTED} more" if len(told) > _LISTED else ""
        what = "changed what it shares with its judge and with what it is compared with"
        return f"{what}: {'; '.join(told[:_LISTED])}{more}" if told else ""

    def after_call(self, call: Callable[[], Any], look: Callable[[Any], Any]) -> tuple[Any, str]:
        """Call once on the CPU and look at the result at once and a while later; give it, and what was not finished.

        ``look`` copies what the call gave, in a form that compares equal where nothing changed.
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
        for owner, before in self._names.items():
            now = vars(owner)
            replaced = [
                name
                for name, value in before.items()
                if now.get(name) is not value and _is_function(value) and not _is_of_dynamo(now.get(name))
            ]
            replaced += [
                name for name in now.keys() - before.keys() if callable(now[name]) and _hides(owner, name)
            ]
            home = owner.__name__ if isinstance(owner, ModuleType) else _shown(owner)
            yield from (f"{home}.{name} is now {_shown(now.get(name, 'gone'))}" for name in replaced)

    def _set(self) -> Iterator[str]:
        now = _settings()
        for name, before in self._settings.items():
            after = now.get(name)
            if isinstance(before, frozenset) and after != before:
                yield f"{name}: {', '.join(sorted((after or frozenset()) ^ before)[:_LISTED])}"
            elif after != before:
                yield f"{name} was {before} and is {after}"


# --- names ---------------------------------------------------------------------------------------------


def _owners(model: torch.nn.Module) -> Iterable[ModuleType | type]:
    """Give the modules and classes that are watched, each once."""
    modules = [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and (name in _WATCHED or name.startswith(_WITH_ALL_BELOW))
    ]
    classes = [
        value
        for module in modules
        for value in list(vars(module).values())
        # by its type: some of torch's objects warn when an attribute of theirs is read
        if issubclass(type(value), type)
        and (str(value.__module__) in _CLASSES_OF or str(value.__module__).startswith(_CLASSES_BELOW))
    ]
    return {id(each): each for each in (*modules, *classes, *map(type, model.modules()))}.values()


def _is_function(value: object) -> bool:
    return callable(value) or issubclass(type(value), staticmethod | classmethod | property)


def _hides(owner: ModuleType | type, name: str) -> bool:
    """Whether a name that is new in ``owner`` is found before one that was there: a base's, or a built-in."""
    if isinstance(owner, type):
        return any(name in vars(base) for base in owner.__mro__[1:])
    return hasattr(builtins, name)


def _is_of_dynamo(value: object) -> bool:
    """Whether it is a function of torch's compiler, which wraps some of torch's own when it is first used."""
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename.startswith(str(_TORCH / "_dynamo"))


def _shown(value: object) -> str:
    name = getattr(value, "__qualname__", "")
    return f"{getattr(value, '__module__', '')}.{name}" if name else repr(value)[:60]


# --- settings ------------------------------------------------------------------------------------------

_READ = {
    torch: (
        *("get_num_threads", "get_num_interop_threads", "get_float32_matmul_precision", "get_default_dtype"),
        *("get_default_device", "is_grad_enabled", "is_inference_mode_enabled"),
        "are_deterministic_algorithms_enabled",
    ),
    sys: ("gettrace", "getprofile", "getswitchinterval"),
    torch._C: (
        *("_get_cudnn_enabled", "_get_cudnn_allow_tf32", "_get_cublas_allow_tf32", "_get_mkldnn_enabled"),
        "_get_cublas_allow_fp16_reduced_precision_reduction",
        "_get_cublas_allow_bf16_reduced_precision_reduction",
        *("_get_flash_sdp_enabled", "_get_mem_efficient_sdp_enabled", "_get_math_sdp_enabled"),
        *("_len_torch_function_stack", "_len_torch_dispatch_stack"),
    ),
}
"""Functions that tell a setting; not every version of torch has all of its own."""


def _settings() -> dict[str, Any]:
    """Read what holds for the whole process and changes how fast, or how exactly, everything in it computes."""
    import torch.nn.modules.module as modules

    hooks = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_module_registration_hooks")
    overridden = map(str, getattr(torch.library, "_impls", ()))
    read = ((owner, name) for owner, names in _READ.items() for name in names if hasattr(owner, name))
    found: dict[str, Any] = {
        **{f"{owner.__name__}.{name}()": _read(getattr(owner, name)) for owner, name in read},
        "the processors that the process may use": tuple(sorted(os.sched_getaffinity(0))),
        "the process's priority": os.getpriority(os.PRIO_PROCESS, 0),
        "the global hooks of torch.nn": tuple(len(getattr(modules, each, ())) for each in hooks),
        "operators of torch were overridden": frozenset(x for x in overridden if x.startswith("aten/")),
    }
    dynamo: Any = sys.modules.get("torch._dynamo")
    if dynamo is not None:  # whether a compiled function runs as it was compiled
        found["torch.compiler's stance"] = str(getattr(dynamo.eval_frame, "_stance", ""))
        found["torch._dynamo.config.disable"] = dynamo.config.disable
    return found


def _read(setting: Callable[[], Any]) -> Any:
    """Read a setting; torch refuses to where its older and its newer names were used for it, which is an answer too."""
    try:
        return setting()
    except RuntimeError as error:
        return first_line(error)


def _versions(model: torch.nn.Module) -> tuple[int, ...]:
    """Give how often each parameter was written, and where it lies, and how many hooks each module has."""
    weights = ((each._version, each.data_ptr()) for each in model.parameters())
    hooks = (
        len(module._forward_hooks) + len(module._forward_pre_hooks) + ("forward" in vars(module))
        for module in model.modules()
    )
    return (*chain.from_iterable(weights), *hooks)


# --- threads -------------------------------------------------------------------------------------------


def _count_starts() -> list[int]:
    """Count the threads that Python starts from now on; the count is in the list."""
    import _thread

    count, start = [0], _thread.start_new_thread

    def counted(*args: Any, **kwargs: Any) -> int:
        count[0] += 1
        return start(*args, **kwargs)

    for owner, name in (
        (_thread, "start_new_thread"),
        (_thread, "start_new"),
        (threading, "_start_new_thread"),
    ):
        if hasattr(owner, name):
            setattr(owner, name, counted)
    return count


def _of_compilers() -> set[int]:
    """Give the threads of inductor's own pool, which wait for the next compilation, and of its subprocesses."""
    module: Any = sys.modules.get("torch._inductor.async_compile")
    pool = getattr(getattr(module, "AsyncCompile", None), "pool", None)
    idle = pool()._threads if pool is not None and pool.cache_info().currsize else ()
    home = str(_TORCH / "_inductor")
    reading = {
        ident
        for ident, frame in sys._current_frames().items()
        if any(each.f_code.co_filename.startswith(home) for each, _ in walk_stack(frame))
    }
    return {thread.ident for thread in idle} | reading


def _work_of_others(known: set[str]) -> int:
    """Give how many nanoseconds the threads that are not ``known`` have been on a processor."""
    total = 0
    for task in set(os.listdir("/proc/self/task")) - known:
        with suppress(OSError, ValueError, IndexError):  # it has ended, or the kernel does not tell
            total += int(Path(f"/proc/self/task/{task}/schedstat").read_text().split()[0])
    return total


# --- streams -------------------------------------------------------------------------------------------


def after_call_on_cuda(
    call: Callable[[], Any], look: Callable[[Any], str], previous: str
) -> tuple[Any, str, str]:
    """Call once behind a sleeping stream; give the result, what is wrong with its order, and its fingerprint.

    Work on a stream that nobody joins is done in the end, and a check that waits for the whole device sees the right
    answer; a program that goes on with the result does not.

    ``look`` gives the fingerprint of a result; an answer that equals the ``previous`` one, to other inputs, tells
    nothing of its order.
    """
    torch.cuda.synchronize()
    torch.cuda._sleep(_SLEEP_CYCLES)
    awake = torch.cuda.Event()
    awake.record()
    given = call()
    results = [each for _, each in tensors(given) if not unreal(each) and each.is_cuda]
    ahead, asleep = [], not awake.query()
    if asleep:  # copies past the sleeping stream
        side = _side_stream()
        with torch.cuda.stream(side):
            ahead = [each.clone() for each in results]
        side.synchronize()
        asleep = not awake.query()
    early = [each.clone() for each in results]
    torch.cuda.synchronize()
    print_, wrong = look(given), ""
    if differing(early, results):
        wrong = "was not finished when the stream that it was called on went on: work on another stream was not joined"
    elif asleep and results and print_ != previous and not differing(ahead, results):
        wrong = (
            "gave its answer before the work queued ahead of it was done: it computes on a stream of its own, which"
            " nothing orders after its inputs"
        )
    return given, wrong, print_


@cache
def _side_stream() -> torch.cuda.Stream:
    """Give one stream for all copies: another one would have no memory of its own yet, and wait for some."""
    return torch.cuda.Stream()
