"""What may be concluded from numbers: pure functions, with no device and no clock."""

from kernelmark.stats.mean_ratio import MeanRatio, mean_ratio
from kernelmark.stats.overview import Overview, overview
from kernelmark.stats.ratio import paired_ratio
from kernelmark.stats.student import t_quantile
from kernelmark.stats.summary import drift, nearest_rank, summarise

__all__ = [
    "MeanRatio",
    "Overview",
    "drift",
    "mean_ratio",
    "nearest_rank",
    "overview",
    "paired_ratio",
    "summarise",
    "t_quantile",
]
