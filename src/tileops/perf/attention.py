"""Operations and bytes of attention, which depend on the mask and so do not fit a formula in the manifest."""

from __future__ import annotations

from kernelmark.manifest import WorkloadCall
from kernelmark.manifest.dtypes import DTYPE_BYTES

__all__ = ["forward"]


def forward(call: WorkloadCall) -> tuple[int, int]:
    """Return operations and bytes: the two products over the pairs of query and key that the mask leaves,
    without the softmax.

    With a causal mask whose end is the end of both sequences, query ``i`` of ``S`` sees ``L - S + i + 1`` of
    ``L`` keys. Every input is read once and every output written once.
    """
    dims = call.dims
    batch, heads, kv_heads, head_dim = dims["B"], dims["H"], dims["G"], dims["D"]
    queries, keys = dims["S"], dims["L"]
    pairs = queries * keys
    if call.params["causal"]:
        pairs -= queries * (queries - 1) // 2
    elements = 2 * batch * head_dim * (queries * heads + keys * kv_heads)
    flops = 4 * batch * heads * head_dim * pairs
    return flops, elements * DTYPE_BYTES[call.dtypes["T"]] + 4 * batch * heads * queries
