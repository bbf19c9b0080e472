"""What torch's own compiler makes of a function: the one baseline of that kind, for every way in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelmark.harness.implementation import Unavailable

__all__ = ["Compiled", "compiled_by_inductor"]


class Compiled:
    """A compiled function, and how often torch compiled since it was made ready.

    Attributes:
        function: Call it as the function that it was made of.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._before = _graphs()

    def recompiled(self) -> int:
        """Say how many graphs were compiled since; what is timed then holds compilations."""
        return _graphs() - self._before


def compiled_by_inductor(
    function: Callable[..., Any],
    call: Callable[[Callable[..., Any]], Any],
    *,
    judge: Callable[[Any], str] | None = None,
    **options: Any,
) -> Compiled | Unavailable:
    """Compile ``function`` now, or say why that cannot be had here.

    Args:
        function: A function or module that works as it is.
        call: Calls what it is given once, as it will be timed, and gives the answer; it puts back what that wrote.
        judge: Says what is wrong with the answer of the second call; blank for nothing.
        options: For ``torch.compile``.
    """
    import torch

    compiled: Any = torch.compile(function, **options)
    try:
        call(compiled)
        answer = call(compiled)  # guards on what the first call made are compiled for in the second
        wrong = judge(answer) if judge is not None else ""
    except Exception as error:  # noqa: BLE001 - as it is it works, so whatever this is comes from compiling
        text = str(error).strip().partition("\n")[0]
        return Unavailable(f"torch.compile failed: {type(error).__name__}{': ' if text else ''}{text}")
    if wrong:
        return Unavailable(f"its answer is not eager's: {' '.join(wrong.split())}")
    return Compiled(compiled)


def _graphs() -> int:
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
