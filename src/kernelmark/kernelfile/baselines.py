"""The baselines of a solution: the reference as it is, compiled, and asked for flashinfer.

One that cannot be had is a row that says why, never another one under its name.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch

from kernelmark.harness import Case, Implementation, Unavailable
from kernelmark.kernelfile.reference import Reference, by_name, copied
from kernelmark.kernelfile.request import Baseline
from kernelmark.text import in_short

__all__ = ["Compiled", "make_baselines"]


class Compiled:
    """Counts how often torch compiled the reference, so that recompiling while timing does not go unseen."""

    def __init__(self) -> None:
        self.before = self._count()

    def start(self) -> None:
        """Count from now."""
        self.before = self._count()

    def note(self) -> str | None:
        """Say how often torch compiled since :meth:`start`; ``None`` if it did not."""
        count = self._count() - self.before
        if not count:
            return None
        return f"torch compiled {count} more graphs after its first two calls, so its times hold compilations"

    @staticmethod
    def _count() -> int:
        from torch._dynamo.utils import counters

        return int(counters["stats"]["unique_graphs"])


def make_baselines(
    names: tuple[Baseline, ...], workload: Any, reference: Reference, case: Case
) -> tuple[dict[str, Implementation | Unavailable], Compiled | None]:
    """Make each baseline; the compiled one is compiled here."""
    made: dict[str, Implementation | Unavailable] = {}
    compiled: Compiled | None = None
    for name in names:
        if name is Baseline.EAGER:
            made[name] = _implementation(reference.function, workload, reference, "torch eager")
        elif name is Baseline.COMPILE:
            made[name], compiled = _compile(workload, reference)
        else:
            made[name] = _flashinfer(workload, reference)
    return made, compiled


def _compile(workload: Any, reference: Reference) -> tuple[Implementation | Unavailable, Compiled | None]:
    function = torch.compile(reference.function)
    baseline = _implementation(function, workload, reference, "torch.compile")
    try:
        _call_once(baseline, workload)
        _call_once(baseline, workload)  # guards on what the first call made are compiled for in the second
    except Exception as error:  # noqa: BLE001 - eager works, so whatever this is comes from compiling
        return Unavailable(f"torch.compile failed: {in_short(error)}"), None
    return baseline, Compiled()


def _flashinfer(workload: Any, reference: Reference) -> Implementation | Unavailable:
    parameters = inspect.signature(reference.function).parameters
    open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    if "baseline" not in parameters and not open_ended:
        return Unavailable(f"{reference.path.name}: reference() takes no baseline")

    def function(**kwargs: Any) -> Any:
        return reference.function(**{**kwargs, "baseline": "flashinfer"})

    baseline = _implementation(function, workload, reference, "flashinfer")
    try:
        _call_once(baseline, workload)
    except ImportError as error:
        return Unavailable(f"flashinfer cannot be imported: {error}")
    except Exception:  # noqa: BLE001 - the check calls it again, and tells
        return baseline
    if "flashinfer" not in sys.modules:
        return Unavailable(
            f'{reference.path.name}: reference(baseline="flashinfer") did not import flashinfer, so it is another'
            " implementation"
        )
    return baseline


def _implementation(
    function: Callable[..., Any], workload: Any, reference: Reference, backend: str
) -> Implementation:
    """Call ``function`` on the shared inputs, with output buffers of its own."""
    inputs = dict(zip(workload.names, workload.inputs, strict=True))
    changing = {name: inputs[name].clone() for name in inputs if name in workload.outputs}
    buffers = {name: torch.empty_like(value) for name, value in workload.buffers.items()}
    kwargs = {**workload.extra, **inputs, **changing, **buffers}
    outputs, path = workload.outputs, reference.path
    in_place = {name: kwargs[name] for name in outputs}

    def run() -> Any:
        result = function(**kwargs)
        return in_place if result is None else by_name(result, outputs, kwargs, path)

    def reset() -> None:
        for name, value in changing.items():
            value.copy_(inputs[name])

    return Implementation(
        run=run,
        args=(),
        reset=reset if changing else None,
        owned_outputs=tuple(buffers.values()) if _writes_in_place(reference, workload) else (),
        backend=backend,
    )


def _writes_in_place(reference: Reference, workload: Any) -> bool:
    """Whether the reference fills its buffers, rather than return tensors of its own."""
    kwargs = {**workload.extra, **dict(zip(workload.names, workload.inputs, strict=True)), **workload.buffers}
    return reference.function(**copied(kwargs)) is None


def _call_once(implementation: Implementation, workload: Any) -> None:
    if implementation.reset is not None:
        implementation.reset()
    implementation.run()
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
