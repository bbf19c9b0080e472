"""Whether a call on a CUDA device has put all of its work where what comes after it waits for it.

Work on a stream that nobody joins is done in the end, and a check that waits for the whole device sees the right
answer; a program that goes on with the result does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from kernelmark.verify.guards import differing
from kernelmark.verify.structure import leaves, unreal

__all__ = ["after_call_on_cuda"]

_SLEEP_CYCLES = 40_000_000
"""20 ms at 2 GHz: longer than launching a call takes, also where it is one of hundreds of kernels."""


def after_call_on_cuda(
    call: Callable[[], Any], look: Callable[[Any], str], previous: str
) -> tuple[Any, str, str]:
    """Call once behind a sleeping stream; give the result, what is wrong with its order, and its fingerprint.

    Args:
        call: The call.
        look: Gives the fingerprint of a result.
        previous: The fingerprint of the answer to other inputs; one that equals it tells nothing of its order.
    """
    torch.cuda.synchronize()
    torch.cuda._sleep(_SLEEP_CYCLES)
    awake = torch.cuda.Event()
    awake.record()
    given = call()
    tensors = [
        leaf.value
        for leaf in leaves(given, "output")
        if isinstance(leaf.value, torch.Tensor) and not unreal(leaf.value) and leaf.value.is_cuda
    ]
    ahead, asleep = _seen_from_another_stream(tensors, awake)
    early = [each.clone() for each in tensors]
    torch.cuda.synchronize()
    print_ = look(given)
    if differing(early, tensors):
        return (
            given,
            "was not finished when the stream that it was called on went on: work on another stream was not joined",
            print_,
        )
    if asleep and tensors and print_ != previous and not differing(ahead, tensors):
        return (
            given,
            "gave its answer before the work queued ahead of it was done: it computes on a stream of its own, which"
            " nothing orders after its inputs",
            print_,
        )
    return given, "", print_


@cache
def _side_stream() -> torch.cuda.Stream:
    """Give one stream for all copies: another one would have no memory of its own yet, and wait for some."""
    return torch.cuda.Stream()


def _seen_from_another_stream(
    tensors: list[torch.Tensor], awake: torch.cuda.Event
) -> tuple[list[torch.Tensor], bool]:
    """Copy tensors past the sleeping stream; tell whether it slept until the copies were there."""
    if awake.query():
        return [], False
    side = _side_stream()
    with torch.cuda.stream(side):
        copies = [each.clone() for each in tensors]
    side.synchronize()
    return copies, not awake.query()
