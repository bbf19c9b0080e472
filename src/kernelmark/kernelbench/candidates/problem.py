"""A problem as both processes make it: the model, its inputs, what is close enough. No candidate is loaded here.

Both make the same weights and draw the same inputs from the same seeds, since both come here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernelmark.errors import UsageError
from kernelmark.kernelbench.candidates.drawing import Draws
from kernelmark.kernelbench.candidates.job import Job, Mode
from kernelmark.models.compilers import compute_float32_exactly
from kernelmark.models.state import Kept, cloned
from kernelmark.verify import Exact, differing
from kernelmark.verify.structure import leaves
from torchsched.ingress import make_model, parse_input_shapes

__all__ = ["Problem", "in_mode", "load_problem", "tensors_of"]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem's model on its device, with inputs."""

    model: torch.nn.Module
    kept: Kept
    """What the model's calls change of it."""
    draws: Draws
    declaration: Exact

    def answer(self, *inputs: Any) -> Any:
        """Give the right answer, computed on copies of ``inputs`` from the state that the model was made with."""
        if self.kept.is_empty:
            return self.model(*cloned(inputs))
        self.kept.put_back()
        answer = cloned((self.model(*cloned(inputs)),))[0]  # it may be what the model holds
        self.kept.put_back()
        return answer


def load_problem(job: Job, device: str) -> Problem:
    """Make the model and draw its inputs.

    Raises:
        ModelFileError: the problem's file lacks what it must hold, or its own code raised.
        UsageError: the model writes its own inputs, so that no two calls of it are alike.
    """
    settings = job.settings
    if settings.element.bytes >= 4:
        compute_float32_exactly()
    model = make_model(job.model, init_args=job.arguments, element=settings.element, seed=settings.seed)
    in_mode(model.to(device), settings.mode)
    specs = parse_input_shapes(job.inputs)
    draws = Draws(specs, element=settings.element, device=device, seed=settings.seed)
    kept, given = Kept(model), cloned(draws.base)
    model(*given)
    kept.after_first_call()
    if written := differing(given, draws.base):
        raise UsageError(f"{job.problem}: its own Model writes to its inputs ({', '.join(written)})")
    return Problem(model, kept, draws, Exact(tolerance=settings.policy))


def in_mode(model: torch.nn.Module, mode: Mode) -> torch.nn.Module:
    """Put a module into the mode that a run asks for."""
    return model.train(mode is Mode.TRAIN)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Give the tensors in a nested answer."""
    return [leaf.value for leaf in leaves(value, "output") if isinstance(leaf.value, torch.Tensor)]
