"""Ceilings as they were measured, how long to measure them, and the profile that they make. Measures nothing."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kernelmark.records import DeviceRecord
from kernelmark.roofline.model import Calibration, Figure, Profile, Rate

__all__ = ["FULL", "QUICK", "SHORT", "Ceilings", "Effort", "measured_profile"]


@dataclass(frozen=True, slots=True)
class Effort:
    """Seconds for each access pattern, for the best product of each dtype, and for the product kept up."""

    stream_s: float
    matmul_s: float
    sustained_s: float = 0.0
    """0 measures no sustained rate."""


SHORT = Effort(stream_s=0.5, matmul_s=1.0)
"""What a run of benchmarks may cost when it meets a CPU for the first time: under 6 s in all."""

FULL = Effort(stream_s=0.5, matmul_s=1.0, sustained_s=2.0)
"""2 s of one product are enough for a GPU's power cap to lower its clock: it does within the first second."""

QUICK = Effort(stream_s=0.02, matmul_s=0.05, sustained_s=0.1)
"""Shows that measuring works; too short for ceilings that are worth keeping."""


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What was reached: bytes per second by access pattern, operations per second by dtype."""

    bandwidth: dict[str, float]
    flops: dict[Rate, float]
    buffer_bytes: int
    taken_by_others: float | None = None
    """The part of the processors' time meanwhile that went to other processes; ``None`` if nobody says."""
    sustained: dict[Rate, float] = field(default_factory=dict)
    """Operations per second over the second half of a product kept up; what power and heat leave."""

    def measured(self) -> dict[str, float]:
        """Give every figure under a name that ends with its unit."""
        return {
            **{f"{pattern}_bytes_per_s": value for pattern, value in self.bandwidth.items()},
            **{f"short_{rate.value}_flops_per_s": value for rate, value in self.flops.items()},
            **{f"sustained_{rate.value}_flops_per_s": value for rate, value in self.sustained.items()},
        }


def measured_profile(
    device: DeviceRecord, ceilings: Ceilings, *, name: str, conditions: Mapping[str, str]
) -> Profile:
    """Describe ``ceilings``, measured now: the best access pattern, and the best rate of each dtype."""
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    pattern, bandwidth = max(ceilings.bandwidth.items(), key=lambda item: item[1])
    return Profile(
        name=name,
        kind=device.kind,
        match=(glob.escape(device.name),),
        bandwidth=Figure(bandwidth, f"best {pattern} rate that torch reached here, {date}"),
        flops={
            rate: Figure(
                max(value, ceilings.sustained.get(rate, 0.0)),
                f"best {rate.value} matrix product that torch reached here, {date}",
            )
            for rate, value in ceilings.flops.items()
        },
        calibration=Calibration(date, dict(conditions), ceilings.measured()),
    )
