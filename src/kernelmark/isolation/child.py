"""A worker's process from inside: takes requests from its channel, calls the function, and answers.

Its outer frame turns whatever the function raises into an answer. It prints nothing of its own.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from functools import reduce
from importlib import import_module
from typing import Any

from kernelmark.isolation.channel import Channel, be_worker, kinds_of, plain, typed
from kernelmark.isolation.failures import encode

__all__ = ["die_with", "main", "serve"]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def main(number: int, parent: int) -> None:
    """Be a worker, started by ``parent``, whose channel has this number among its files."""
    die_with(parent)
    serve(socket.socket(fileno=number))
    os._exit(0)  # house: what a worker loaded may wait for its threads for ever


def serve(line: socket.socket) -> None:
    """Be a worker until whoever started this process has closed the channel."""
    faulthandler.enable(all_threads=False)  # there is a thread a core that flushes, and each would be shown
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)  # so that what it starts stays its descendant, whoever starts it
    channel = Channel(line)
    with suppress(
        EOFError, BrokenPipeError, KeyboardInterrupt
    ):  # whoever asked is gone, or ends what is idle
        opening = channel.receive()
        be_worker(channel, judge=opening["judge"])
        if opening["memory_bytes"] is not None:
            resource.setrlimit(resource.RLIMIT_AS, (opening["memory_bytes"],) * 2)
        while True:
            channel.say(_carried_out(opening["target"], channel.receive()["request"], channel))
            signal.signal(
                signal.SIGTERM, signal.SIG_DFL
            )  # a request's handler would print what it broke off below
            _let_go()


def die_with(parent: int) -> None:
    """Let this process be killed when the one that started it ends, where the system can do that."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was killed before
        os._exit(1)  # house: there is nobody left to tell


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _carried_out(target: str, request: Any, channel: Channel) -> dict[str, Any]:
    module, _, name = target.partition(":")
    try:
        function: Any = reduce(getattr, name.split("."), import_module(module))
        wanted, _ = kinds_of(function)
        answer = {"answer": plain(function(typed(wanted, request), channel))}
    except BaseException as error:  # noqa: BLE001 - the outermost frame: everything becomes the answer
        answer = {"error": encode(error)}
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    return answer


def _let_go() -> None:
    """Forget what torch compiled for the request, and the memory it held."""
    dynamo: Any = sys.modules.get("torch._dynamo")
    if dynamo is not None:
        # else the next size is compiled with dynamic shapes, because the last one was another
        dynamo.reset()
    gc.collect()
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
