"""The ops, by the names that the manifest uses."""

from tileops.ops.activation import SiluInplaceOp
from tileops.ops.attention import AttentionFwdOp
from tileops.ops.moe import MoeCombineOp
from tileops.ops.norm_bwd import RMSNormBwdOp
from tileops.ops.quant import Int8QuantOp
from tileops.ops.selection import TopKOp

__all__ = [
    "AttentionFwdOp",
    "Int8QuantOp",
    "MoeCombineOp",
    "RMSNormBwdOp",
    "SiluInplaceOp",
    "TopKOp",
]
