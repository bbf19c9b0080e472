"""The transform for products of matrices: finds them in a module, and writes each as packed, tiled, vectorised loops.

Owns which products are rewritten and what they are computed with. The rest is :mod:`gemm`'s: recognising a product,
choosing its blocks, writing its loops.
"""

from __future__ import annotations

from typing import Any

from torchsched.bindings import Module, Operation, bindings
from torchsched.targets import Architecture, Feature, Target
from torchsched.transforms.gemm.blocks import Machine, Numbers, Sizes, choose_blocks
from torchsched.transforms.gemm.contraction import Contraction, is_product, match_contraction
from torchsched.transforms.gemm.emit import Emitter, Value
from torchsched.transforms.gemm.epilogue import match_epilogue
from torchsched.transforms.gemm.nest import emit_blocked
from torchsched.transforms.gemm.product import Product
from torchsched.transforms.gemm.thin import emit_thin, thin_of

__all__ = ["pack_and_tile"]


def pack_and_tile(  # house: a schedule sets each size by name
    module: Module,
    *,
    target: Target,
    mr: int = 0,
    nr: int = 0,
    kc: int = 0,
    mc: int = 0,
    nc: int = 0,
    unroll: int = 0,
    threads: int = 0,
) -> None:
    """Rewrite every product of matrices in ``module``; what is none stays as it is.

    A product takes with it the transposes and widenings of its operands, and the elementwise operation on its
    result. Sizes of 0 are chosen from the product's shape, its element type and the target's caches.

    Args:
        module: On tensors, with static shapes where something is to be rewritten.
        target: What the code is for.
        mr: Rows of a tile of sums in registers.
        nr: Its columns; rounded up to whole vectors.
        kc: Steps of a packed block.
        mc: Rows of a packed block.
        nc: Columns of a packed block.
        unroll: Times that the innermost loop's body is repeated.
        threads: Threads that share the work; by default those of the target.
    """
    sizes = Sizes(mr, nr, kc, mc, nc, unroll)
    machine = _machine(target, threads)
    ir = bindings("ir")
    with module.context, ir.Location.unknown(module.context):
        for op in _products(module):
            contraction = match_contraction(op)
            if contraction is not None:
                _rewrite(_product(contraction, target, machine), sizes)


def _products(module: Module) -> list[Operation]:
    """List the products at the top level of functions; what is inside a loop is another transform's doing.

    They are read one by one as they are rewritten: an operand of one may be what another's loops give.
    """
    functions = [each for each in module.body.operations if each.operation.name == "func.func"]
    blocks = [block for function in functions for block in function.regions[0].blocks]
    return [op.operation for block in blocks for op in block.operations if is_product(op.operation)]


def _machine(target: Target, threads: int) -> Machine:
    many = target.name != Architecture.X86_64 or Feature.AVX512 in target.features
    sizes = target.caches.by_level
    return Machine(
        registers=32 if many else 16,
        threads=threads or target.code_threads,
        l2=sizes.get("L2", 0),
        l3=sizes.get("L3", 0),
    )


def _product(contraction: Contraction, target: Target, machine: Machine) -> Product:
    element = contraction.element
    # LLVM cuts wider vectors of known length in halves there, also for SVE, and their sums would not fit.
    bits = min(target.vector_bits, 128) if target.name == Architecture.AARCH64 else target.vector_bits
    lanes = max(2, bits // element.width)
    narrow = [contraction.lhs.element, contraction.rhs.element]
    bf16 = all(str(each) == "bf16" for each in narrow) and str(element) == "f32"
    paired = bf16 and Feature.AVX512_BF16 in target.features and lanes == 16
    factor = narrow[0] if paired else element
    unit = bindings("ir").IntegerType.get_signless(32) if paired else element
    numbers = Numbers(lanes, bytes=factor.width // 8, pair=2 if paired else 1)
    return Product(contraction, match_epilogue(contraction), numbers, machine, factor, unit)


def _rewrite(product: Product, sizes: Sizes) -> None:
    ir = bindings("ir")
    root = product.root
    with ir.InsertionPoint(root), root.location:
        e = Emitter()
        thin = thin_of(product)
        if thin is not None:
            value = emit_thin(e, product, thin)
        else:
            blocks = choose_blocks(product.shape, product.numbers, product.machine, sizes)
            value = emit_blocked(e, product, blocks)
        value = _restored(value, root.results[0].type, product.contraction.groups)
    root.results[0].replace_all_uses_with(value)
    root.erase()
    if product.epilogue is not None:
        product.contraction.op.erase()


def _restored(value: Value, type_: Any, groups: tuple[tuple[int, ...], ...]) -> Value:
    """Give ``value`` the dimensions of ``type_``: joined ones apart, and those of one element."""
    if value.type.rank == type_.rank:
        return value
    return bindings("dialects.tensor").expand_shape(
        type_, value, list(map(list, groups)), [], list(type_.shape)
    )
