"""The loops over time of LSTM, GRU and RNN, as MLIR on tensors.

Text in, text out: it knows the shapes and the element type of a call, and neither torch nor the bindings. The
product of each step adds to what the inputs gave; floats of 16 bits are added and passed through the gates in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torchsched.elements import Element
from torchsched.signature import TensorType

__all__ = ["function_text"]

_SLOTS = 2
"""The state and an LSTM's cell are carried in slots of one tensor, and two slots also where one is used. What fills
a whole tensor is folded into another one, and bufferisation refuses a loop that yields another buffer than it got."""


@dataclass(frozen=True, slots=True)
class _Shape:
    steps: int
    batch: int
    width: int
    gates: int
    element: Element

    @property
    def accumulator(self) -> Element:
        return Element.F32 if self.element.bytes == 2 else self.element

    @property
    def states(self) -> str:
        return TensorType((self.steps, self.batch, self.width), self.element).mlir

    @property
    def state(self) -> str:
        return TensorType((self.batch, self.width), self.element).mlir

    @property
    def slots(self) -> str:
        return TensorType((_SLOTS, self.batch, self.width), self.element).mlir

    @property
    def all_gates(self) -> str:
        return TensorType((self.steps, self.batch, self.gates * self.width), self.element).mlir

    def gates_in(self, element: Element) -> str:
        """Give the type of one step's gates."""
        return TensorType((self.batch, self.gates * self.width), element).mlir

    def weight(self, *, transposed: bool = False) -> str:
        """Give the type of the state's weights."""
        shape = (self.gates * self.width, self.width)
        return TensorType(shape[::-1] if transposed else shape, self.element).mlir


def function_text(operation: str, name: str, types: list[TensorType], *, reverse: bool) -> str:
    """Write the function that does ``operation``.

    Args:
        operation: ``lstm_steps``, ``gru_steps``, ``rnn_tanh_steps`` or ``rnn_relu_steps``.
        name: The function's name.
        types: Of the arguments: the gates, the state, and so on.
        reverse: Whether the last step comes first.
    """
    gates, state = types[0], types[1]
    batch, width = state.shape
    shape = _Shape(gates.shape[0], batch, width, gates.shape[2] // width, state.element)
    return {
        "lstm_steps": _lstm,
        "gru_steps": _gru,
        "rnn_tanh_steps": lambda *given: _rnn(*given, activation=_tanh),
        "rnn_relu_steps": lambda *given: _rnn(*given, activation=_relu),
    }[operation](name, shape, reverse)


def _lstm(name: str, s: _Shape, reverse: bool) -> str:
    acc = s.accumulator
    return f"""
func.func private @{name}(%gates: {s.all_gates}, %h0: {s.state}, %c0: {s.state}, %w: {s.weight()})
    -> ({s.states}, {s.state}, {s.state}) {{
{_before_the_loop(s)}
{_put(s, "%h0", 0, "%slots", "%slots0")}
{_put(s, "%c0", 1, "%slots0", "%slots1")}
  %r:2 = scf.for %n = %from to %to step %one iter_args(%out = %out0, %old = %slots1) -> ({s.states}, {s.slots}) {{
{_take(s, "%old", 0, "%h")}
{_take(s, "%old", 1, "%c")}
{_inputs_of_the_step(s, reverse)}
{_product(s, "%x")}
{_parts(s, "%sum", "i", "f", "g", "o")}
    %next:2 = linalg.generic {{{_maps(6)}}}
      ins(%i, %f, %g, %o : {_many(s, acc, 4)}) outs(%h, %c : {s.state}, {s.state}) {{
    ^bb0(%ig: {acc}, %fg: {acc}, %gg: {acc}, %og: {acc}, %u: {s.element}, %was: {s.element}):
{_widen(s, "%was", "%cell")}
{_sigmoid(acc, "%ig", "%is")}
{_sigmoid(acc, "%fg", "%fs")}
{_sigmoid(acc, "%og", "%os")}
      %gt = math.tanh %gg : {acc}
      %kept = arith.mulf %fs, %cell : {acc}
      %added = arith.mulf %is, %gt : {acc}
      %c2 = arith.addf %kept, %added : {acc}
      %ct = math.tanh %c2 : {acc}
      %h2 = arith.mulf %os, %ct : {acc}
{_narrow(s, "%h2", "%hn")}
{_narrow(s, "%c2", "%cn")}
      linalg.yield %hn, %cn : {s.element}, {s.element}
    }} -> ({s.state}, {s.state})
{_keep(s, "%next#0")}
{_put(s, "%next#0", 0, "%old", "%half")}
{_put(s, "%next#1", 1, "%half", "%new")}
    scf.yield %kept_all, %new : {s.states}, {s.slots}
  }}
{_take(s, "%r#1", 0, "%hn")}
{_take(s, "%r#1", 1, "%cn")}
  return %r#0, %hn, %cn : {s.states}, {s.state}, {s.state}
}}
"""


def _gru(name: str, s: _Shape, reverse: bool) -> str:
    acc = s.accumulator
    bias, wide = TensorType((s.gates * s.width,), s.element).mlir, s.gates_in(acc)
    return f"""
func.func private @{name}(%gates: {s.all_gates}, %h0: {s.state}, %w: {s.weight()}, %bias: {bias})
    -> ({s.states}, {s.state}) {{
{_before_the_loop(s)}
  %e0 = tensor.empty() : {wide}
  %b = linalg.generic {{indexing_maps = [affine_map<(a, b) -> (b)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]}} ins(%bias : {bias}) outs(%e0 : {wide}) {{
  ^bb0(%in: {s.element}, %u: {acc}):
{_widen(s, "%in", "%v")}
    linalg.yield %v : {acc}
  }} -> {wide}
{_put(s, "%h0", 0, "%slots", "%slots0")}
  %r:2 = scf.for %n = %from to %to step %one iter_args(%out = %out0, %old = %slots0) -> ({s.states}, {s.slots}) {{
{_take(s, "%old", 0, "%h")}
{_inputs_of_the_step(s, reverse)}
{_product(s, "%b")}
{_parts(s, "%x", "xr", "xz", "xn")}
{_parts(s, "%sum", "hr", "hz", "hn")}
    %next = linalg.generic {{{_maps(7)}}}
      ins(%xr, %xz, %xn, %hr, %hz, %hn : {_many(s, acc, 6)}) outs(%h : {s.state}) {{
    ^bb0(%xr_: {acc}, %xz_: {acc}, %xn_: {acc}, %hr_: {acc}, %hz_: {acc}, %hn_: {acc}, %was: {s.element}):
{_widen(s, "%was", "%before")}
      %ra = arith.addf %xr_, %hr_ : {acc}
{_sigmoid(acc, "%ra", "%reset")}
      %za = arith.addf %xz_, %hz_ : {acc}
{_sigmoid(acc, "%za", "%update")}
      %scaled = arith.mulf %reset, %hn_ : {acc}
      %na = arith.addf %xn_, %scaled : {acc}
      %fresh = math.tanh %na : {acc}
      %difference = arith.subf %before, %fresh : {acc}
      %share = arith.mulf %difference, %update : {acc}
      %after = arith.addf %share, %fresh : {acc}
{_narrow(s, "%after", "%cut")}
      linalg.yield %cut : {s.element}
    }} -> {s.state}
{_keep(s, "%next")}
{_put(s, "%next", 0, "%old", "%new")}
    scf.yield %kept_all, %new : {s.states}, {s.slots}
  }}
{_take(s, "%r#1", 0, "%last_state")}
  return %r#0, %last_state : {s.states}, {s.state}
}}
"""


def _rnn(name: str, s: _Shape, reverse: bool, *, activation: Callable[[Element], str]) -> str:
    acc = s.accumulator
    return f"""
func.func private @{name}(%gates: {s.all_gates}, %h0: {s.state}, %w: {s.weight()}) -> ({s.states}, {s.state}) {{
{_before_the_loop(s)}
{_put(s, "%h0", 0, "%slots", "%slots0")}
  %r:2 = scf.for %n = %from to %to step %one iter_args(%out = %out0, %old = %slots0) -> ({s.states}, {s.slots}) {{
{_take(s, "%old", 0, "%h")}
{_inputs_of_the_step(s, reverse)}
{_product(s, "%x")}
    %next = linalg.generic {{{_maps(2)}}} ins(%sum : {s.gates_in(acc)}) outs(%h : {s.state}) {{
    ^bb0(%in: {acc}, %u: {s.element}):
{activation(acc)}
{_narrow(s, "%act", "%cut")}
      linalg.yield %cut : {s.element}
    }} -> {s.state}
{_keep(s, "%next")}
{_put(s, "%next", 0, "%old", "%new")}
    scf.yield %kept_all, %new : {s.states}, {s.slots}
  }}
{_take(s, "%r#1", 0, "%last_state")}
  return %r#0, %last_state : {s.states}, {s.state}
}}
"""


# --- parts that they share -------------------------------------------------------------------------------


def _before_the_loop(s: _Shape) -> str:
    # Once for all steps: a step's product then reads the weights by rows.
    turned = s.weight(transposed=True)
    return f"""  %from = arith.constant 0 : index
  %one = arith.constant 1 : index
  %to = arith.constant {s.steps} : index
  %last = arith.constant {s.steps - 1} : index
  %we = tensor.empty() : {turned}
  %wt = linalg.transpose ins(%w : {s.weight()}) outs(%we : {turned}) permutation = [1, 0]
  %out0 = tensor.empty() : {s.states}
  %slots = tensor.empty() : {s.slots}"""


def _inputs_of_the_step(s: _Shape, reverse: bool) -> str:
    place = "arith.subi %last, %n" if reverse else "arith.addi %from, %n"
    narrow, wide = s.gates_in(s.element), s.gates_in(s.accumulator)
    read = f"""    %t = {place} : index
    %x0 = tensor.extract_slice %gates[%t, 0, 0] [1, {s.batch}, {s.gates * s.width}] [1, 1, 1]
      : {s.all_gates} to {narrow}
    %xe = tensor.empty() : {wide}"""
    # A copy also where nothing is widened: the product adds to it, and the gates must stay as they are.
    return f"""{read}
    %x = linalg.generic {{{_maps(2)}}} ins(%x0 : {narrow}) outs(%xe : {wide}) {{
    ^bb0(%in: {s.element}, %u: {s.accumulator}):
{_widen(s, "%in", "%v")}
      linalg.yield %v : {s.accumulator}
    }} -> {wide}"""


def _product(s: _Shape, start: str) -> str:
    wide = s.gates_in(s.accumulator)
    return f"""    %sum = linalg.matmul ins(%h, %wt : {s.state}, {s.weight(transposed=True)})
      outs({start} : {wide}) -> {wide}"""


def _parts(s: _Shape, gates: str, *names: str) -> str:
    part = TensorType((s.batch, s.width), s.accumulator).mlir
    return "\n".join(
        f"    %{name} = tensor.extract_slice {gates}[0, {at * s.width}] [{s.batch}, {s.width}] [1, 1]"
        f" : {s.gates_in(s.accumulator)} to {part}"
        for at, name in enumerate(names)
    )


def _keep(s: _Shape, state: str) -> str:
    return f"""    %kept_all = tensor.insert_slice {state} into %out[%t, 0, 0] [1, {s.batch}, {s.width}] [1, 1, 1]
      : {s.state} into {s.states}"""


def _put(s: _Shape, state: str, slot: int, slots: str, name: str) -> str:
    return f"""    {name} = tensor.insert_slice {state} into {slots}[{slot}, 0, 0] [1, {s.batch}, {s.width}] [1, 1, 1]
      : {s.state} into {s.slots}"""


def _take(s: _Shape, slots: str, slot: int, name: str) -> str:
    return f"""    {name} = tensor.extract_slice {slots}[{slot}, 0, 0] [1, {s.batch}, {s.width}] [1, 1, 1]
      : {s.slots} to {s.state}"""


def _many(s: _Shape, element: Element, count: int) -> str:
    return ", ".join([TensorType((s.batch, s.width), element).mlir] * count)


def _maps(count: int) -> str:
    maps = ", ".join(["affine_map<(a, b) -> (a, b)>"] * count)
    return f'indexing_maps = [{maps}], iterator_types = ["parallel", "parallel"]'


def _sigmoid(element: Element, value: str, name: str) -> str:
    return f"""      {name}_neg = arith.negf {value} : {element}
      {name}_exp = math.exp {name}_neg : {element}
      {name}_one = arith.constant 1.0 : {element}
      {name}_sum = arith.addf {name}_exp, {name}_one : {element}
      {name} = arith.divf {name}_one, {name}_sum : {element}"""


def _tanh(element: Element) -> str:
    return f"      %act = math.tanh %in : {element}"


def _relu(element: Element) -> str:
    return f"""      %zero = arith.constant 0.0 : {element}
      %act = arith.maximumf %in, %zero : {element}"""


def _widen(s: _Shape, value: str, name: str) -> str:
    if s.element is s.accumulator:
        # MLIR has no operation that names a value anew; this one folds away.
        return f"      {name} = arith.bitcast {value} : {s.element} to {s.element}"
    return f"      {name} = arith.extf {value} : {s.element} to {s.accumulator}"


def _narrow(s: _Shape, value: str, name: str) -> str:
    if s.element is s.accumulator:
        return f"      {name} = arith.bitcast {value} : {s.element} to {s.element}"
    return f"      {name} = arith.truncf {value} : {s.accumulator} to {s.element}"
