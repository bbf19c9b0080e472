"""Taking times: the protocol, its budgets, the timers, and the one loop that uses them."""

from kernelmark.timing.bench import bench_kernel
from kernelmark.timing.budget import Budget
from kernelmark.timing.options import TimingOptions
from kernelmark.timing.reading import block_samples
from kernelmark.timing.rounds import BudgetedCounts, FixedCounts, InRounds, RoundsOptions, time_in_rounds
from kernelmark.timing.timer import Call, Samples, Timer
from kernelmark.timing.timers import TIMERS, open_timer
from kernelmark.timing.together import AfterPass, time_together

__all__ = [
    "TIMERS",
    "AfterPass",
    "Budget",
    "BudgetedCounts",
    "Call",
    "FixedCounts",
    "InRounds",
    "RoundsOptions",
    "Samples",
    "Timer",
    "TimingOptions",
    "bench_kernel",
    "block_samples",
    "open_timer",
    "time_in_rounds",
    "time_together",
]
