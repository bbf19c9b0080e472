"""What a reference gives for a call, as shapes and dtypes, found out without computing a number.

The reference runs on torch's fake tensors: the shapes and dtypes of real ones, no memory and no values. A
reference that looks at values cannot run so; then the reason is the answer. Knows nothing of levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernelmark.manifest.call import TensorSpec, WorkloadCall

__all__ = ["NotRun", "References"]

Reference = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class NotRun:
    """Why a reference's structure is not known."""

    reason: str


@dataclass(slots=True)
class References:
    """Runs each call's reference once, however many levels ask.

    Args:
        reference_for: Gives a call's reference, ``None`` where it has none, or why there is none to be had.
    """

    reference_for: Callable[[WorkloadCall], Reference | NotRun | None]
    _known: dict[str, tuple[TensorSpec, ...] | NotRun] = field(default_factory=dict)

    def outputs_of(self, call: WorkloadCall) -> tuple[TensorSpec, ...] | NotRun:
        """Give the structure of the reference's outputs, or why it is not known."""
        if call.id not in self._known:
            self._known[call.id] = self._run(call)
        return self._known[call.id]

    def _run(self, call: WorkloadCall) -> tuple[TensorSpec, ...] | NotRun:
        try:
            reference = self.reference_for(call)
            if isinstance(reference, NotRun):
                return reference
            if reference is None:
                return NotRun("the case has no reference")
            returned = _on_fake_tensors(reference, call)
        except Exception as error:  # noqa: BLE001 - foreign code: whatever it raises is the reason it did not run
            text = str(error).strip().splitlines()
            return NotRun(
                f"the reference does not run on tensors without values: {type(error).__name__}"
                + (f": {text[0]}" if text else "")
            )
        return _structure(returned)


def _on_fake_tensors(reference: Reference, call: WorkloadCall) -> Any:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    # A workload may hold real tensors that its reference reads; only those made here are fake.
    with FakeTensorMode(allow_non_fake_inputs=True):
        specs = [call.tensors.get(name) for name in call.signature]
        inputs = [s and torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in specs]
        return reference(*inputs)


def _structure(returned: Any) -> tuple[TensorSpec, ...] | NotRun:
    import torch

    outputs = () if returned is None else returned if isinstance(returned, tuple | list) else (returned,)
    for output in outputs:
        if not isinstance(output, torch.Tensor):
            return NotRun(f"the reference returns {type(output).__name__}, which is no tensor")
    return tuple(TensorSpec(tuple(o.shape), str(o.dtype).removeprefix("torch.")) for o in outputs)
