"""A candidate's answers to inputs drawn after timing: left by the worker, and compared where it was never loaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelmark.device import open_device
from kernelmark.errors import VerificationError
from kernelmark.files import replace
from kernelmark.isolation import Channel
from kernelmark.kernelbench.candidates.job import CANDIDATE, Job
from kernelmark.kernelbench.candidates.problem import Problem, digest, load_problem
from kernelmark.kernelfile.request import SecondCheck
from kernelmark.kernelfile.second_check import NoPlainDataError, Reader, TooLargeError, Writer
from kernelmark.verify import check_outputs, run_controls, vacuous
from kernelmark.verify.structure import leaves, unreal

__all__ = ["compare_answers", "judge_answers", "leave_answers", "look_at"]

_TABLE, _BYTES = "answers.json", "answers.bin"


def leave_answers(
    call: Callable[[], Any], problem: Problem, seeds: Sequence[int], folder: Path, *, case_id: str
) -> None:
    """Call once on the inputs that each of ``seeds`` draws, and leave what the calls were given and what they gave.

    Args:
        call: Calls the candidate on the problem's arguments, and raises what is wrong with its conduct.
        problem: Whose arguments are set; at the same addresses as before.
        seeds: Drawn by the parent after timing.
        folder: The job's folder.
        case_id: For messages.

    Raises:
        VerificationError: it gave something that is no plain tensor.
        Exception: whatever the candidate raises.
    """
    told: list[dict[str, Any]] = []
    with open(folder / _BYTES, "wb") as stream:
        writer = Writer(stream)
        for seed in seeds:
            problem.draws.take(seed)
            given = call()
            for leaf in leaves(given, "output"):
                reason = unreal(leaf.value) if isinstance(leaf.value, torch.Tensor) else None
                if reason:
                    raise VerificationError(f"{case_id}: {CANDIDATE}: {leaf.name} {reason}")
            try:
                outputs = writer.told(given)
            except NoPlainDataError as error:
                raise VerificationError(f"{case_id}: {CANDIDATE} gave something else: {error}") from error
            except TooLargeError:
                break
            told.append({"outputs": outputs, "inputs": digest(problem.draws.arguments)})
    replace(folder / _TABLE, json.dumps(told))


def look_at(given: Any) -> str:
    """Give a fingerprint of the elements of an answer that are there to be looked at."""
    values = [leaf.value for leaf in leaves(given, "output")]
    return digest([each for each in values if isinstance(each, torch.Tensor) and not unreal(each)])


def judge_answers(job: Job, _: Channel) -> SecondCheck:
    """Be the judge: make the problem, and compare what the worker has left with its own model's answers.

    Raises:
        Exception: the problem cannot be made here.
    """
    device = open_device(job.settings.device).torch_name
    with torch.no_grad():
        return compare_answers(job, load_problem(job, device), device)


def compare_answers(job: Job, problem: Problem, device: str) -> SecondCheck:
    """Compare what a worker has left with the answers of the problem's own model to the same inputs."""
    try:
        told = json.loads((job.folder / _TABLE).read_text(encoding="utf-8"))[: len(job.drawn)]
        with open(job.folder / _BYTES, "rb") as stream:
            return _compared(told, Reader(stream, device), job, problem)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        return SecondCheck(
            wrong=f"it left no answers that can be read ({type(error).__name__}: {error}), so nothing shows that"
            " it is right"
        )


def _compared(told: Sequence[Any], reader: Reader, job: Job, problem: Problem) -> SecondCheck:
    if not told:
        return SecondCheck(
            undone="its answers are too large to be handed over and checked outside its process"
        )
    first: Any = None
    proves, same, outputs = "", problem.draws.vary and len(told) > 1, ()
    for number, (seed, left) in enumerate(zip(job.drawn, told, strict=False), start=1):
        which = f"draw {number} of {len(job.drawn)}"
        inputs = problem.draws.draw(seed)
        if left["inputs"] != digest(inputs):
            return SecondCheck(wrong=f"{which}: it wrote to its inputs")
        torch.manual_seed(seed)
        expected = problem.answer(*inputs)
        verdict = check_outputs(reader.value(left["outputs"]), expected, problem.declaration)
        outputs = verdict.outputs
        if not verdict.passed:
            return SecondCheck(wrong=f"{which}: {verdict.message}", outputs=outputs)
        if number == 1:
            first = expected
            proves = vacuous(run_controls(expected, inputs, problem.declaration))
        else:
            same = same and check_outputs(expected, first, problem.declaration).passed
    if same and not proves:
        proves = (
            f"the problem's own answer is the same for {len(told)} draws of the inputs, so that one which does not"
            " look at them would pass"
        )
    return SecondCheck(vacuous=proves, outputs=outputs)
