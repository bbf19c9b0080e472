"""LSTM, GRU and RNN as operations over all steps, where torch's own decomposition unrolls each step.

Unrolled, an LSTM of 512 steps and two layers is 25,000 operations: more than a minute to import and far more to
compile. Here, while a model is traced, a layer becomes one product for the inputs of all steps, and one operation of
kernelmark's own, whose loop ``recurrent_loops`` writes in MLIR. Knows torch and no MLIR.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["NAMESPACE", "WholeLayers", "over_all_steps"]

NAMESPACE = "kernelmark"
"""Of the operations that are imported as calls of functions written in MLIR."""

Tensors = Sequence[torch.Tensor]


@functools.cache
def _operations() -> Any:
    """Define the operations, once in a process; they have shapes and no code of their own.

    ``gates`` is steps × batch × (gates · width): what the inputs add to each gate, biases included. ``weight`` is
    (gates · width) × width. With ``reverse`` the last step comes first. All give the state after each step, and
    those after the last.
    """
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    for name, more, fake in (
        (
            "lstm_steps",
            "Tensor cell, Tensor weight, bool reverse) -> (Tensor, Tensor, Tensor)",
            _fake_with_cell,
        ),
        ("gru_steps", "Tensor weight, Tensor bias, bool reverse) -> (Tensor, Tensor)", _fake),
        ("rnn_tanh_steps", "Tensor weight, bool reverse) -> (Tensor, Tensor)", _fake),
        ("rnn_relu_steps", "Tensor weight, bool reverse) -> (Tensor, Tensor)", _fake),
    ):
        library.define(f"{name}(Tensor gates, Tensor state, {more}")
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=library)
    return library


def _fake(gates: torch.Tensor, state: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    return state.new_empty((gates.shape[0], *state.shape)), state.new_empty(state.shape)


def _fake_with_cell(gates: torch.Tensor, state: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    return *_fake(gates, state), state.new_empty(state.shape)


def over_all_steps(function: Any, arguments: Sequence[Any]) -> tuple[torch.Tensor, ...] | None:
    """Do what torch's ``function`` does to ``arguments`` by operations over all steps; None if it is another one.

    torch's functions for packed sequences, and LSTMs that project their state, are left to torch.
    """
    name = getattr(function, "__name__", "")
    net = _NETS.get(name)
    if net is None or function != getattr(torch._VF, name) or isinstance(arguments[2], torch.Tensor):
        return None
    _operations()
    return net(*arguments)


class WholeLayers(TorchFunctionMode):
    """Lets each recurrent layer that is traced be one operation over all steps.

    The operations have no gradients.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = over_all_steps(func, args) if not kwargs else None
        return func(*args, **(kwargs or {})) if given is None else given


def _lstm(
    x: torch.Tensor, first: Tensors, weights: Tensors, *options: Any
) -> tuple[torch.Tensor, ...] | None:
    if isinstance(first, torch.Tensor) or first[0].shape[-1] != first[1].shape[-1]:
        return None
    hidden, cell = first

    def layer(gates: torch.Tensor, at: int, weight: torch.Tensor, bias: Any, reverse: bool) -> Tensors:
        return torch.ops.kernelmark.lstm_steps(gates, hidden[at], cell[at], weight, reverse)

    return _layers(x, weights, layer, options)


def _gru(x: torch.Tensor, first: torch.Tensor, weights: Tensors, *options: Any) -> tuple[torch.Tensor, ...]:
    def layer(gates: torch.Tensor, at: int, weight: torch.Tensor, bias: Any, reverse: bool) -> Tensors:
        # The reset gate scales the state's part of the third gate, bias included: it cannot be added before.
        bias = gates.new_zeros(gates.shape[-1]) if bias is None else bias
        return torch.ops.kernelmark.gru_steps(gates, first[at], weight, bias, reverse)

    return _layers(x, weights, layer, options, bias_apart=True)


def _rnn(
    operation: str, x: torch.Tensor, first: torch.Tensor, weights: Tensors, *options: Any
) -> tuple[torch.Tensor, ...]:
    def layer(gates: torch.Tensor, at: int, weight: torch.Tensor, bias: Any, reverse: bool) -> Tensors:
        return getattr(torch.ops.kernelmark, operation)(gates, first[at], weight, reverse)

    return _layers(x, weights, layer, options)


_NETS: dict[str, Callable[..., tuple[torch.Tensor, ...] | None]] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": functools.partial(_rnn, "rnn_tanh_steps"),
    "rnn_relu": functools.partial(_rnn, "rnn_relu_steps"),
}
"""By the names of torch's functions, which ``nn.LSTM`` and its kin call."""


def _layers(
    x: torch.Tensor,
    weights: Tensors,
    layer: Callable[..., Tensors],
    options: Sequence[Any],
    *,
    bias_apart: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Run ``layer`` for each layer and direction; ``options`` are what torch's functions take after the weights."""
    has_biases, num_layers, dropout, train, bidirectional, batch_first = options
    x = x.transpose(0, 1) if batch_first else x
    directions, stride = 2 if bidirectional else 1, 4 if has_biases else 2
    last: list[Tensors] = []
    for number in range(num_layers):
        outs = []
        for direction in range(directions):
            at = number * directions + direction
            of_input, of_state, *biases = weights[at * stride : (at + 1) * stride]
            gates = _gates(x, of_input, biases[:1] if bias_apart else biases)
            states, *rest = layer(gates, at, of_state, biases[1] if biases else None, direction == 1)
            outs.append(states)
            last.append(rest)
        x = torch.cat(outs, dim=-1) if bidirectional else outs[0]
        if dropout > 0 and train and number < num_layers - 1:
            x = torch.dropout(x, dropout, train)
    out = x.transpose(0, 1) if batch_first else x
    return (out, *(torch.stack(list(each)) for each in zip(*last, strict=True)))


def _gates(x: torch.Tensor, weight: torch.Tensor, biases: Tensors) -> torch.Tensor:
    """Give what the inputs of all steps add to the gates, by one product of matrices."""
    steps, batch, features = x.shape
    gates = torch.mm(x.reshape(steps * batch, features), weight.t())
    for bias in biases:
        gates = gates + bias
    return gates.view(steps, batch, weight.shape[0])
