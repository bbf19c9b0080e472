"""Weights are shared by name and shape; what is timed gets inputs that are new before each call."""

from __future__ import annotations

import torch

from kernelmark.errors import DeviceMemoryError, ImplementationError, VerificationError
from kernelmark.kernelbench.candidates.worker import raising_its_own, share_weights


class Named(torch.nn.Module):
    def __init__(self, **sizes: int) -> None:
        super().__init__()
        for name, size in sizes.items():
            setattr(self, name, torch.nn.Parameter(torch.randn(size)))
        self.register_buffer("mean", torch.randn(2))


def test_weights_that_agree_are_copied_and_the_others_are_named() -> None:
    model, new = Named(a=3, b=4, c=5), Named(a=3, b=7, d=5)
    with torch.no_grad():
        told = share_weights(model, new)
        assert torch.equal(model.a, new.a)
        assert torch.equal(model.mean, new.mean)
        assert told == (
            "weights not shared, since names or shapes differ: Model's b, c; ModelNew's b, d; both were made with"
            " the same seed"
        )
        model.a.zero_()
        assert new.a.abs().sum() > 0
        assert share_weights(Named(a=2), Named(a=2)) == ""
        assert share_weights(Named(a=2), Named()).endswith("Model's a; both were made with the same seed")


def test_what_a_candidate_raises_is_told_as_the_engine_tells_it() -> None:
    own = VerificationError("mine")
    assert raising_its_own(own, "c") is own
    raised = raising_its_own(ValueError("one\ntwo"), "c")
    assert type(raised) is ImplementationError
    assert str(raised) == "c: candidate raised ValueError: one"
    assert type(raising_its_own(MemoryError(), "c")) is DeviceMemoryError
