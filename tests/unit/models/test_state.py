"""What a model writes is found by calling it, and put back bit for bit before every other call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelmark.errors import ModelFileError, ModelRunError
from kernelmark.models.state import Kept, State, plain_inputs
from torchsched.elements import Element
from torchsched.signature import TensorType


class Counts(torch.nn.Module):
    """Writes a buffer in place, rebinds a tensor, and writes its input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros(3))
        self.register_buffer("fixed", torch.ones(3))
        self.hidden = torch.full((3,), 2.0)
        self.inner = torch.nn.Module()
        self.inner.register_buffer("deep", torch.zeros(3))

    def forward(self, x: torch.Tensor, more: list[torch.Tensor]) -> torch.Tensor:
        self.get_buffer("calls").add_(1)
        self.hidden = self.hidden * 2
        self.inner.get_buffer("deep").copy_(x)
        more[0].mul_(2)
        return self.get_buffer("calls") + x + self.hidden * self.weight


def _inputs() -> tuple[Any, ...]:
    return torch.arange(3.0), [torch.ones(2), torch.zeros(2)]


def test_a_model_that_writes_nothing_has_no_state() -> None:
    x = torch.randn(2, 4)
    state = State(torch.nn.BatchNorm1d(4).eval(), (x,))
    assert state.is_empty
    assert state.names == ()
    assert state.private_inputs() == (x,)
    assert state.outputs == (TensorType((2, 4), Element.F32),)


def test_buffers_attributes_and_inputs_that_are_written_are_found_and_put_back() -> None:
    model, inputs = Counts(), _inputs()
    hidden = model.hidden
    state = State(model, inputs)
    assert state.names == ("calls", "hidden", "inner.deep")
    assert state.private_inputs()[1][0] is not inputs[1][0]
    assert model.hidden is hidden
    assert torch.equal(model.get_buffer("calls"), torch.zeros(3))
    assert torch.equal(inputs[1][0], torch.ones(2))  # it was called on copies


def test_every_call_gives_the_same_where_the_state_is_put_back() -> None:
    model, inputs = Counts(), _inputs()
    state = State(model, inputs)
    private = state.private_inputs()
    answers = []
    for _ in range(3):
        state.put_back(private)
        answers.append((model(*private).detach(), {k: v.clone() for k, v in state.after(private).items()}))
    first = answers[0]
    assert set(first[1]) == {"calls", "hidden", "inner.deep", "input[1]"}
    for answer in answers[1:]:
        torch.testing.assert_close(answer, first, rtol=0, atol=0)
    assert torch.equal(first[1]["hidden"], torch.full((3,), 4.0))


def test_training_statistics_are_state_and_evaluation_has_none() -> None:
    norm, x = torch.nn.BatchNorm1d(4), torch.randn(8, 4)
    assert State(norm.train(), (x,)).names == ("running_mean", "running_var", "num_batches_tracked")
    assert State(norm.eval(), (x,)).is_empty


def test_results_of_compiled_code_are_found_by_the_arguments_they_write() -> None:
    state = State(Counts(), _inputs())
    results = {"calls": torch.ones(3), "hidden": torch.ones(3), "more_0": torch.ones(2)}
    found = state.after_results(results, ["x", "more_0", "more_1"])
    assert set(found) == {"calls", "hidden", "input[1]"}  # inner.deep was not written: the check will say so
    assert found["input[1]"] is results["more_0"]


def test_a_model_that_writes_its_parameters_is_refused() -> None:
    class Learns(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.weight.mul_(2)
            return x * self.weight

    with pytest.raises(ModelRunError, match="writes its parameter 'weight'"):
        State(Learns(), (torch.ones(3),))


def test_the_state_of_other_inputs_calls_nothing() -> None:
    model = Counts()
    state = State(model, _inputs())
    others = (torch.ones(3), [torch.full((2,), 5.0), torch.zeros(2)])
    other = state.for_inputs(others)
    private = other.private_inputs()
    model(*private)
    other.put_back(private)
    assert torch.equal(private[1][0], torch.full((2,), 5.0))
    assert torch.equal(model.get_buffer("calls"), torch.zeros(3))


def test_inputs_are_made_contiguous_and_aligned_and_others_stay() -> None:
    good, turned, odd = torch.randn(4, 4), torch.randn(3, 5).t(), torch.randn(9)[1:]
    made = plain_inputs([good, [turned, odd], 3, None])
    assert made[0].data_ptr() == good.data_ptr()
    assert made[1][0].is_contiguous()
    assert torch.equal(made[1][0], turned)
    assert made[1][1].data_ptr() % 64 == 0
    assert made[2:] == (3, None)


def test_what_the_first_call_changes_is_put_back_and_the_rest_is_let_go() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))
            self.last = torch.ones(2)
            self.table = torch.ones(1000)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.last = x * self.table[:2]
            return self.last + self.calls

    model, x = Counting(), torch.tensor([3.0, 4.0])
    kept, place = Kept(model), model.last.data_ptr()
    first = model(x)
    kept.after_first_call()
    assert not kept.is_empty
    assert (float(model.calls), model.last.tolist(), model.last.data_ptr()) == (0.0, [1.0, 1.0], place)
    assert torch.equal(model(x), first)
    kept.put_back()
    assert float(model.calls) == 0.0
    model.table.zero_()
    kept.put_back()
    assert not model.table.any()

    plain = torch.nn.Linear(2, 2)
    none = Kept(plain)
    plain(x)
    none.after_first_call()
    assert none.is_empty


def test_a_model_that_pytorch_cannot_run_has_no_answer_to_compare_with() -> None:
    pooling = torch.nn.AvgPool3d(2).to(torch.bfloat16)
    with pytest.raises(
        ModelFileError, match=r"PyTorch itself cannot run AvgPool3d .*BFloat16.*another --dtype"
    ):
        State(pooling, (torch.ones(1, 1, 4, 4, 4, dtype=torch.bfloat16),))
