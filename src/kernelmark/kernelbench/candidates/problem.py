"""A problem as both processes make it: the model, its inputs, what is close enough. No candidate is loaded here.

Both make the same weights and draw the same inputs from the same seeds, since both come here. A candidate gets new
inputs before each timed call, at the same addresses: a call that has never seen its inputs cannot have kept its
answer. Drawing from nothing each time would take longer than most calls, so the values of one draw are turned round
in memory by a number that is drawn: as likely as before, in other places. What must keep its structure (a triangle,
a symmetry) is scaled instead.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelmark.errors import UsageError
from kernelmark.kernelbench.candidates.job import Job, Mode
from kernelmark.models.compilers import compute_float32_exactly
from kernelmark.models.state import Kept, cloned
from kernelmark.verify import Exact, differing
from torchsched.elements import Element
from torchsched.ingress import InputSpec, draw_inputs, make_model, parse_input_shapes
from torchsched.ingress.shapes import Literal, Values

__all__ = ["Draws", "Problem", "digest", "in_mode", "load_problem"]

_SAMPLER = random.SystemRandom()
_TURNED = (Values.RANDOM, Values.SIGNS)
_SCALED = (Values.SYMMETRIC, Values.UPPER, Values.LOWER)
_SCALES = 1 << 20


class Draws:
    """Inputs on a device, whose values are renewed in place.

    Args:
        specs: What the inputs are.
        element: The type of those that name none.
        device: Where they are.
        seed: Of the draw that the others are made from.

    Attributes:
        base: The draw itself.
        arguments: What calls get; the same tensors all the time.
    """

    def __init__(
        self, specs: Sequence[InputSpec | Literal], *, element: Element, device: str, seed: int
    ) -> None:
        self._specs, self._element, self._device = tuple(specs), element, device
        self.base = self.draw(seed)
        self.arguments = tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in self.base)
        self._seed = seed
        self._keys = [0] * len(self.base)

    def draw(self, seed: int) -> tuple[Any, ...]:
        """Draw inputs with ``seed``: the same in every process."""
        drawn = draw_inputs(self._specs, element=self._element, seed=seed)
        return tuple(each.to(self._device) if isinstance(each, torch.Tensor) else each for each in drawn)

    def renew(self) -> None:
        """Give the arguments values that they did not have before, and set the random state that goes with them."""
        self._keys = [self._key(spec, base) for spec, base in zip(self._specs, self.base, strict=True)]
        for key, spec, base, mine in zip(self._keys, self._specs, self.base, self.arguments, strict=True):
            if isinstance(mine, torch.Tensor):
                _put(mine, base, spec, key)
        self._seed = _SAMPLER.getrandbits(31)
        torch.manual_seed(self._seed)

    def take(self, seed: int) -> None:
        """Give the arguments the values that :meth:`draw` draws with ``seed``, and set the random state to it."""
        for mine, value in zip(self.arguments, self.draw(seed), strict=True):
            if isinstance(mine, torch.Tensor):
                mine.copy_(value)
        torch.manual_seed(seed)

    def now(self) -> tuple[Any, ...]:
        """Give the values that :meth:`renew` gave last, in tensors of their own, and set the same random state."""
        given = []
        for key, spec, base in zip(self._keys, self._specs, self.base, strict=True):
            mine = torch.empty_like(base) if isinstance(base, torch.Tensor) else base
            if isinstance(mine, torch.Tensor):
                _put(mine, base, spec, key)
            given.append(mine)
        torch.manual_seed(self._seed)
        return tuple(given)

    @property
    def vary(self) -> bool:
        """Whether another seed draws other inputs at all."""
        return any(drawn_at_random(spec) for spec in self._specs)

    @staticmethod
    def _key(spec: InputSpec | Literal, base: Any) -> int:
        if not isinstance(spec, InputSpec) or base.numel() < 2:
            return 0
        if spec.values in _TURNED:
            return _SAMPLER.randrange(1, base.numel())
        if spec.values is Values.PROBABILITIES:
            return _SAMPLER.randrange(base.shape[0]) * (base.numel() // base.shape[0])
        return _SAMPLER.randrange(1, _SCALES) if _is_scaled(spec, base) else 0


def drawn_at_random(spec: InputSpec | Literal) -> bool:
    """Whether the values of ``spec`` depend on the seed."""
    return isinstance(spec, InputSpec) and spec.values not in (Values.IDENTITY, Values.ZEROS, Values.ONES)


def digest(values: Sequence[Any]) -> str:
    """Give a fingerprint of every bit of the tensors among ``values``, with their forms."""
    found = hashlib.sha256()
    for each in values:
        if isinstance(each, torch.Tensor):
            found.update(f"{each.dtype}{list(each.shape)}".encode())
            flat = each.detach().cpu().contiguous().reshape(-1)
            found.update(flat.view(torch.uint8).numpy().data if flat.numel() else b"")
    return found.hexdigest()


def _put(target: torch.Tensor, base: torch.Tensor, spec: InputSpec | Literal, key: int) -> None:
    if key and isinstance(spec, InputSpec) and _is_scaled(spec, base):
        torch.mul(base, 0.5 + key / (2 * _SCALES), out=target)
        return
    mine, flat = target.view(-1), base.view(-1)
    mine[key:].copy_(flat[: flat.numel() - key])
    mine[:key].copy_(flat[flat.numel() - key :])


def _is_scaled(spec: InputSpec, base: torch.Tensor) -> bool:
    return spec.values in _SCALED and base.is_floating_point()


# --- the model -------------------------------------------------------------------------------------------


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
