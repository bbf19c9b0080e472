"""The ops, by the names that the manifest uses."""

from tileops.ops.activation import SiluInplaceOp
from tileops.ops.attention import AttentionFwdOp
from tileops.ops.gemm import BmmFwdOp, GemmFwdOp
from tileops.ops.moe import MoeCombineOp
from tileops.ops.norm import RMSNormFwdOp
from tileops.ops.norm_bwd import RMSNormBwdOp
from tileops.ops.quant import Int8QuantOp
from tileops.ops.selection import TopKOp
from tileops.ops.softmax import SoftmaxFwdOp

__all__ = [
    "AttentionFwdOp",
    "BmmFwdOp",
    "GemmFwdOp",
    "Int8QuantOp",
    "MoeCombineOp",
    "RMSNormBwdOp",
    "RMSNormFwdOp",
    "SiluInplaceOp",
    "SoftmaxFwdOp",
    "TopKOp",
]
