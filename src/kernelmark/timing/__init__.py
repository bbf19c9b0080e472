"""Taking times: the protocol as a value, its budgets, the timers, and the one loop that uses them."""

from kernelmark.timing.bench import bench_kernel
from kernelmark.timing.budget import Budget
from kernelmark.timing.loop import AfterPass, time_together
from kernelmark.timing.protocol import AtPrecision, BudgetedCounts, FixedCounts, Stop, TimingOptions, Turns
from kernelmark.timing.reading import block_samples
from kernelmark.timing.timer import Call, Samples, Timer
from kernelmark.timing.timers import TIMERS, open_timer

__all__ = [
    "TIMERS",
    "AfterPass",
    "AtPrecision",
    "Budget",
    "BudgetedCounts",
    "Call",
    "FixedCounts",
    "Samples",
    "Stop",
    "Timer",
    "TimingOptions",
    "Turns",
    "bench_kernel",
    "block_samples",
    "open_timer",
    "time_together",
]
