"""What may be concluded from numbers: pure functions, with no device and no clock."""

from kernelmark.stats.ratio import paired_ratio
from kernelmark.stats.student import t_quantile
from kernelmark.stats.summary import drift, summarise

__all__ = ["drift", "paired_ratio", "summarise", "t_quantile"]
