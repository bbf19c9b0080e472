"""The k largest elements of each row, with their indices, as a Triton kernel run in rounds.

Each element becomes one 64-bit key: the value in the upper half, mapped so that integer order is
numerical order, and the complement of its index in the lower half, so that of two equal values the
earlier one wins. A round keeps the k largest keys of every chunk of a row; rounds repeat over the
survivors until one chunk is left, whose keys are taken apart again.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["topk"]

# Keys that one program sorts. A sort costs the square of the logarithm of its length, in time and in
# code: 2048 keys compile for sm_90 in about 3 s, without spilling registers.
_CHUNK = 2048


@triton.jit
def _topk_kernel(
    source_ptr,
    keys_ptr,
    values_ptr,
    indices_ptr,
    count,
    k,
    CHUNK: tl.constexpr,
    KEEP: tl.constexpr,
    FIRST: tl.constexpr,
    LAST: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    offsets = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = offsets < count
    lowest: tl.constexpr = -(2**63)
    if FIRST:
        # Adding zero turns -0.0 into +0.0, which are equal as numbers but not as bits.
        value = tl.load(source_ptr + row * count + offsets, mask=inside, other=0.0).to(tl.float32) + 0.0
        bits = value.to(tl.int32, bitcast=True)
        ordered = tl.where(value != value, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))
        keys = (ordered.to(tl.int64) << 32) | (0xFFFFFFFF - offsets.to(tl.int64))
        keys = tl.where(inside, keys, lowest)
    else:
        keys = tl.load(source_ptr + row * count + offsets, mask=inside, other=lowest)
    kept = tl.topk(keys, KEEP)
    slots = tl.arange(0, KEEP)
    if LAST:
        ordered = (kept >> 32).to(tl.int32)
        bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
        value = bits.to(tl.float32, bitcast=True)
        index = 0xFFFFFFFF - (kept & 0xFFFFFFFF)
        tl.store(values_ptr + row * k + slots, value.to(values_ptr.dtype.element_ty), mask=slots < k)
        tl.store(indices_ptr + row * k + slots, index, mask=slots < k)
    else:
        tl.store(keys_ptr + (row * tl.num_programs(1) + chunk) * KEEP + slots, kept)


def topk(x: torch.Tensor, k: int, *, longest: int = _CHUNK) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ``k`` largest elements of each row in descending order, and their int64 indices.

    NaN counts as the largest value, as it does for ``torch.topk``.

    Args:
        x: ``(rows, count)``, in a dtype that float32 holds exactly.
        k: At most ``count``.
        longest: Keys that one program may sort, a power of two.
    """
    rows, count = x.shape
    values = torch.empty((rows, k), dtype=x.dtype, device=x.device)
    indices = torch.empty((rows, k), dtype=torch.int64, device=x.device)
    keep = triton.next_power_of_2(k)
    source, first = x, True
    while True:
        # Twice what is kept, so that a round always leaves fewer keys than it was given.
        chunk = min(triton.next_power_of_2(count), max(longest, 2 * keep))
        chunks = triton.cdiv(count, chunk)
        keys = torch.empty((rows, chunks * keep), dtype=torch.int64, device=x.device)
        _topk_kernel[(rows, chunks)](
            source,
            keys,
            values,
            indices,
            count,
            k,
            CHUNK=chunk,
            KEEP=keep,
            FIRST=first,
            LAST=chunks == 1,
            num_warps=min(max(chunk // 256, 1), 8),
        )
        if chunks == 1:
            return values, indices
        source, count, first = keys, chunks * keep, False
