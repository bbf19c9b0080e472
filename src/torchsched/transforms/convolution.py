"""The transform for convolutions: finds them in a module, and writes those that gain by it as tiled, vectorised loops.

Owns which convolutions are rewritten. The rest is :mod:`conv`'s: recognising one, choosing its tile, writing its loops.
"""

from __future__ import annotations

from torchsched.bindings import Module, Operation, bindings
from torchsched.targets import Architecture, Feature, Target
from torchsched.transforms.conv.matching import match_convolution
from torchsched.transforms.conv.nest import emit_convolution
from torchsched.transforms.conv.tiles import Channels, Wanted, choose_tile
from torchsched.transforms.gemm.emit import Emitter

__all__ = ["tile_convolutions"]

_LEAST_CHANNELS = 4
"""Channels of a group below which vectors lie along rows instead."""
_LEAST_PRODUCTS = 1 << 16
"""Multiply-adds below which one thread does all."""


def tile_convolutions(
    module: Module, *, target: Target, places: int = 0, vectors: int = 0, threads: int = 0
) -> None:
    """Rewrite every convolution of ``module`` that gains by it; the others stay as they are.

    A convolution takes with it the padding of its input, and the zeros between a transposed one's elements.

    Args:
        module: On tensors; convolutions by name or as generic operations.
        target: What the code is for.
        places: Neighbouring places of a row in a tile of sums; 0, here and below, leaves the choice to this.
        vectors: Vectors of channels in a tile.
        threads: Threads that share the work; by default those of the target.
    """
    ir = bindings("ir")
    threads = threads or target.code_threads
    wanted = Wanted(places, vectors)
    with module.context, ir.Location.unknown(module.context):
        for function in module.body.operations:
            if function.operation.name == "func.func":
                blocks = function.operation.regions[0].blocks
                for op in [each.operation for block in blocks for each in block.operations]:
                    _rewrite(op, target, wanted, threads)


def _rewrite(op: Operation, target: Target, wanted: Wanted, threads: int) -> None:
    convolution = match_convolution(op)
    if convolution is None or convolution.outputs < _LEAST_CHANNELS:
        return
    ir = bindings("ir")
    many = target.name != Architecture.X86_64 or Feature.AVX512 in target.features
    bits = min(target.vector_bits, 128) if target.name == Architecture.AARCH64 else target.vector_bits
    lanes = max(4, bits // convolution.element.width)
    channels = Channels(convolution.inputs, convolution.outputs)
    tile, _ = choose_tile(channels, convolution.dimensions, (lanes, 32 if many else 16), wanted)
    if convolution.products < _LEAST_PRODUCTS:
        threads = 1
    with ir.InsertionPoint(op), op.location:
        e = Emitter()
        value = emit_convolution(e, convolution, tile, threads)
        value = e.reshaped(value, list(op.results[0].type.shape))
    op.results[0].replace_all_uses_with(value)
    op.erase()
