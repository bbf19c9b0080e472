"""The one room for other processes: a function is called in a worker, and what became of it is one value.

How to use it::

    def work(job: Job, channel: Channel) -> Answer:      # in the worker; importable, types as annotated
        channel.stage(READY)                             # its time counts from here, where Limits.start_s is given
        channel.stage("compile", limit_s=30)             # a stage of its own limit; the parent knows the last one
        channel.tell(row)                                # handed over now, should this process die later
        channel.beat()                                   # "I am alive", for Limits.silence_s
        seed = channel.ask(TIMED)                        # a stage, and a reply that is made only then
        return Answer(...)                               # or raise: class, fields, cause and notes arrive

    with Worker(work, Limits(time_s=300, memory_bytes=8 << 30), start=Start.FORK, preload=("torch",)) as worker:
        ended = worker.call(job, log=folder / "log.txt", on_stage=..., on_told=..., replies={TIMED: draw_a_seed})
    ended.answer | ended.failure (.error, .message, .traceback) | ended.death (.code, .timed_out, .killed)
    ended.stage, ended.stages, ended.told, ended.output, ended.errors, ended.wall_s, ended.message
    ended.value()                                        # the answer, or raises

- **Requests and answers** are what JSON can hold: numbers, text, lists, frozen dataclasses, pydantic models, paths,
  enums; the types of the function's first parameter and of its result say what they are made into on the other
  side. ``Worker("module:function", ..., answer=Answer)`` does not import the function here.
- **Start.** ``Start.SPAWN`` starts an interpreter; ``Start.FORK`` forks from a server that has ``preload`` already;
  a ``ForkServer`` handed in is shared by several workers (not where the device is a GPU). Without ``keep`` each call
  has a process of its own and threads may call at once; with ``keep`` one process serves calls until one ends badly.
- **Ending.** Whatever the worker started is gone when ``call`` returns (with ``keep``: at ``close``), also in other
  groups and sessions.
- **Turns.** ``turns = Turns()``, handed to all workers that share a machine: inside ``with turn_to_time() as note:``
  in one of them all others are held, and their clocks stand still. A worker inside a worker asks upwards.
- **Errors.** This package's own classes arrive with their fields, built-in ones as themselves, any other as a
  ``ForeignError`` with ``kind``, ``message`` and ``is_a("OutOfMemoryError")``. ``encode`` and ``decode`` do it.
- **The judge.** A ``Judge`` is a worker in which ``refuse_foreign_code_in_a_judge(path)``, which stands before
  whatever loads a solution or a candidate, raises.
- **Programs** that know nothing of workers: ``run_command``.
"""

from kernelmark.isolation.call import Ended, Limits, Turns
from kernelmark.isolation.channel import (
    READY,
    TIMED,
    Channel,
    refuse_foreign_code_in_a_judge,
    turn_to_time,
    typed,
)
from kernelmark.isolation.failures import Failure, ForeignError, decode, describe, encode
from kernelmark.isolation.forkserver import ForkServer
from kernelmark.isolation.process import errors_beside
from kernelmark.isolation.processes import Death, importing_the_same
from kernelmark.isolation.worker import Judge, Start, Worker, run_command

__all__ = [
    "READY",
    "TIMED",
    "Channel",
    "Death",
    "Ended",
    "Failure",
    "ForeignError",
    "ForkServer",
    "Judge",
    "Limits",
    "Start",
    "Turns",
    "Worker",
    "decode",
    "describe",
    "encode",
    "errors_beside",
    "importing_the_same",
    "refuse_foreign_code_in_a_judge",
    "run_command",
    "turn_to_time",
    "typed",
]
