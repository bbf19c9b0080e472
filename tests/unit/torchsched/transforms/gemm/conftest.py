"""Products of matrices as MLIR text: operands in any order of dimensions, and what is done to the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torchsched.bindings import bindings
from torchsched.descriptors import SHIPPED, find_schedule
from torchsched.elements import Element
from torchsched.execution import Compiled, compile_lowered
from torchsched.lowering import Lowered, lower
from torchsched.signature import Argument, Result, Role, Signature, TensorType
from torchsched.targets import Target, detect, override

SUMS = {
    Element.F64: Element.F64,
    Element.F32: Element.F32,
    Element.BF16: Element.F32,
    Element.F16: Element.F32,
    Element.I32: Element.I64,
    Element.I8: Element.I32,
}
"""What torch-mlir adds up in."""


@dataclass(frozen=True)
class Tail:
    """An elementwise operation on a product: its body, from ``%v`` and perhaps ``%w``, and what ``%w`` is."""

    body: str
    axes: str | None = None
    element: Element = Element.F32
    """Of the result."""
    torch: Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor] = lambda v, w: v


TAILS = {
    "bias": Tail("%r = arith.addf %v, %w : f32", "n", torch=lambda v, w: v + w),
    "bias of rows": Tail("%r = arith.mulf %w, %v : f32", "m", torch=lambda v, w: v * w),
    "residual": Tail("%r = arith.subf %v, %w : f32", "bmn", torch=lambda v, w: v - w),
    "relu": Tail(
        "%z = arith.constant 0.0 : f32\n%r = arith.maximumf %v, %z : f32", torch=lambda v, w: v.clamp(min=0)
    ),
    "tanh": Tail(
        "%k = arith.constant 0.125 : f32\n%s = arith.mulf %v, %k : f32\n%e = math.tanh %s : f32\n"
        "%f = math.tanh %e : f32\n%r = arith.subf %f, %e : f32",
        torch=lambda v, w: torch.tanh(torch.tanh(v / 8)) - torch.tanh(v / 8),
    ),
    "narrower": Tail("%r = arith.truncf %v : f32 to bf16", element=Element.BF16),
    "upper triangle": Tail(
        "%i = linalg.index M : index\n%j = linalg.index N : index\n%le = arith.cmpi sle, %i, %j : index\n"
        "%z = arith.constant 0.0 : f32\n%r = arith.select %le, %v, %z : f32",
        torch=lambda v, w: torch.triu(v),
    ),
}


@dataclass(frozen=True)
class Product:
    """``out = initial + lhs * rhs``, and then ``tail``; axes are ``b`` and ``c`` for batches, ``m``, ``n``, ``k``."""

    sizes: Mapping[str, int]
    lhs: str = "mk"
    rhs: str = "kn"
    out: str = "mn"
    element: Element = Element.F32
    initial: str = "zero"
    """``zero``, ``constant``, or ``tensor``."""
    tail: str | None = None

    @property
    def sums(self) -> Element:
        return SUMS[self.element]

    def type_of(self, axes: str, element: Element) -> TensorType:
        return TensorType(tuple(self.sizes[axis] for axis in axes), element)

    @property
    def other(self) -> str | None:
        """The axes of the tail's other operand."""
        axes = TAILS[self.tail].axes if self.tail else None
        return self.out if axes == "bmn" else axes

    @property
    def arguments(self) -> list[TensorType]:
        found = [self.type_of(self.lhs, self.element), self.type_of(self.rhs, self.element)]
        if self.initial == "tensor":
            found.append(self.type_of(self.out, self.sums))
        if self.other is not None:
            found.append(self.type_of(self.other, Element.F32))
        return found

    @property
    def result(self) -> TensorType:
        return self.type_of(self.out, TAILS[self.tail].element if self.tail else self.sums)

    @property
    def text(self) -> str:
        names = ["%a", "%b", *(["%c"] if self.initial == "tensor" else []), *(["%d"] if self.other else [])]
        given = ", ".join(f"{name}: {type_.mlir}" for name, type_ in zip(names, self.arguments, strict=True))
        lines = [f"func.func @main({given}) -> {self.result.mlir} {{", *self._product()]
        if self.tail:
            lines += self._tail(TAILS[self.tail])
        return "\n".join([*lines, f"return %out : {self.result.mlir}", "}"])

    def _product(self) -> list[str]:
        total, element = self.sums.mlir, self.element.mlir
        whole = self.type_of(self.out, self.sums).mlir
        number = "float" if self.sums.is_float else "integer"
        zero, extend, times, plus = {
            "float": ("0.0", "arith.extf", "arith.mulf", "arith.addf"),
            "integer": ("0", "arith.extsi", "arith.muli", "arith.addi"),
        }[number]
        if self.initial == "constant":
            zero = zero.replace("0", "3", 1)
        lines = []
        begin = "%c"
        if self.initial != "tensor":
            begin = "%filled"
            lines = [
                f"%start = arith.constant {zero} : {total}",
                f"%nothing = tensor.empty() : {whole}",
                f"%filled = linalg.fill ins(%start : {total}) outs(%nothing : {whole}) -> {whole}",
            ]
        wide = ["%x", "%y"]
        body = []
        if element != total:
            wide = ["%xw", "%yw"]
            body = [f"{each}w = {extend} {each} : {element} to {total}" for each in ("%x", "%y")]
        name = "%product" if self.tail else "%out"
        maps = ", ".join(self._map(axes, "".join(self.sizes)) for axes in (self.lhs, self.rhs, self.out))
        kinds = ", ".join('"reduction"' if axis == "k" else '"parallel"' for axis in self.sizes)
        types = f"{self.arguments[0].mlir}, {self.arguments[1].mlir}"
        return [
            *lines,
            f"{name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}"
            f" ins(%a, %b : {types}) outs({begin} : {whole}) {{",
            f"^bb0(%x: {element}, %y: {element}, %o: {total}):",
            *body,
            f"%p = {times} {wide[0]}, {wide[1]} : {total}",
            f"%s = {plus} %o, %p : {total}",
            f"linalg.yield %s : {total}",
            f"}} -> {whole}",
        ]

    def _tail(self, tail: Tail) -> list[str]:
        whole = self.type_of(self.out, self.sums).mlir
        identity = self._map(self.out, self.out)
        maps, inputs, types, arguments = [identity], ["%product"], [whole], ["%v: f32"]
        if self.other is not None:
            maps.append(self._map(self.other, self.out))
            inputs.append("%d")
            types.append(self.arguments[-1].mlir)
            arguments.append("%w: f32")
        body = tail.body
        for axis in "mn":
            if axis in self.out:
                body = body.replace(f"index {axis.upper()} ", f"index {self.out.index(axis)} ")
        element = tail.element.mlir
        kinds = ", ".join(['"parallel"'] * len(self.out))
        return [
            f"%empty = tensor.empty() : {self.result.mlir}",
            f"%out = linalg.generic {{indexing_maps = [{', '.join([*maps, identity])}], iterator_types = [{kinds}]}}"
            f" ins({', '.join(inputs)} : {', '.join(types)}) outs(%empty : {self.result.mlir}) {{",
            f"^bb0({', '.join(arguments)}, %u: {element}):",
            body,
            f"linalg.yield %r : {element}",
            f"}} -> {self.result.mlir}",
        ]

    def _map(self, axes: str, loops: str) -> str:
        listed = ", ".join(loops)
        return f"affine_map<({listed}) -> ({', '.join(axes)})>"

    def draw(self, seed: int = 0) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        found = []
        for type_ in self.arguments:
            if type_.element.is_float:
                values = torch.randn(type_.shape, generator=generator, dtype=torch.float64)
            else:
                values = torch.randint(-9, 9, type_.shape, generator=generator)
            found.append(values.to(type_.element.torch))
        return found

    def expected(self, arguments: Sequence[torch.Tensor]) -> torch.Tensor:
        exact = torch.float64 if self.sums.is_float else torch.int64
        a, b, *others = (each.to(exact) for each in arguments)
        found = torch.einsum(f"{self.lhs},{self.rhs}->{self.out}", a, b)
        if self.initial == "constant":
            found = found + 3
        if self.initial == "tensor":
            found = found + others.pop(0)
        if self.tail:
            other = None
            if self.other is not None:
                shape = [self.sizes[axis] if axis in self.other else 1 for axis in self.out]
                other = others.pop(0).reshape(shape)
            found = TAILS[self.tail].torch(found, other)
        return found


def imported(product: Product) -> Any:
    """What ingress gives of a model."""
    ir = bindings("ir")
    context = ir.Context()
    module = ir.Module.parse(product.text, context)
    signature = Signature(
        tuple(Argument(f"x{i}", Role.INPUT, type_) for i, type_ in enumerate(product.arguments)),
        (Result("y", product.result, None),),
    )
    return SimpleNamespace(context=context, module=module, signature=signature)


@dataclass
class Made:
    """A compiled product, and what it became on the way."""

    compiled: Compiled
    lowered: Lowered
    tiled: str
    """The module after products were rewritten."""


def make(product: Product, target: Target, path: Path, **values: int) -> Made:
    """Compile a product by the schedule in ``path``."""
    element = product.element if product.element.is_float else Element.F32
    schedule = find_schedule(str(path), element, target, values=values)
    tiled: list[str] = []

    def observe(step: str, module: Any) -> None:
        if "pack_and_tile" in step:
            tiled.append(str(module))

    lowered = lower(imported(product), schedule, target, observer=observe)
    return Made(compile_lowered(lowered), lowered, tiled[0])


TOLERANCE = {
    Element.F64: 1e-12,
    Element.F32: 1e-5,
    Element.BF16: 1e-2,
    Element.I64: 0.0,
    Element.I32: 0.0,
}
"""Relative to the sum of the terms' sizes, which is about the root of their number."""


def require_right(made: Made, product: Product) -> None:
    """Run a compiled product twice, into memory full of nonsense, and compare with einsum in f64.

    The first run has nothing but NaN to multiply: what it leaves in the workspaces must not reach the second's results.
    """
    arguments, values = product.draw(), product.draw()
    wanted = product.expected(arguments)
    nonsense = float("nan") if product.result.element.is_float else -99
    result = torch.full(product.result.shape, nonsense, dtype=product.result.element.torch)
    bound = made.compiled.bind(arguments, [result])
    for argument in arguments:
        argument.fill_(float("nan") if argument.is_floating_point() else -99)
    bound()
    for argument, value in zip(arguments, values, strict=True):
        argument.copy_(value)
    bound()
    scale = max(1.0, product.sizes["k"] ** 0.5)
    torch.testing.assert_close(
        result.to(wanted.dtype),
        wanted,
        rtol=TOLERANCE[product.result.element],
        atol=TOLERANCE[product.result.element] * scale,
    )


@pytest.fixture(
    params=["here", "here, two threads", "avx512", "avx2", "none"],
)
def target(request: pytest.FixtureRequest) -> Target:
    """Each kind of code that this machine can run."""
    name = request.param
    if name.startswith("here"):
        return detect(threads=2 if "two" in name else 1)
    if name != "none" and name not in detect().features:
        pytest.skip(f"this processor has no {name}")
    return override(detect(threads=1), feature=name)


@pytest.fixture(scope="session")
def free_schedule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pipeline ``matmul`` for any sizes, where the shipped ones let a search choose among some."""
    path = tmp_path_factory.mktemp("schedules") / "free.yaml"
    parts = [
        SHIPPED / name
        for name in ("tensors.yaml", "products.yaml", "vectors.yaml", "split.yaml", "lower.yaml")
    ]
    path.write_text("pipeline:\n" + "".join(f"  - include: {part}\n" for part in parts))
    return path


@pytest.fixture
def check(free_schedule: Path) -> Callable[..., Made]:
    """Compile and run a product: ``check(target, values, **product)``; give what it became."""

    def run(target: Target, values: Mapping[str, int] | None = None, **product: Any) -> Made:
        wanted = Product(**product)
        made = make(wanted, target, free_schedule, **(values or {}))
        require_right(made, wanted)
        return made

    return run


@pytest.fixture
def text_of() -> Callable[..., str]:
    """Give a product's module: ``text_of(**product)``."""
    return lambda **product: Product(**product).text
