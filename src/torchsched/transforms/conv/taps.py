"""Which of a kernel's taps meet something, along one dimension: where a tap reads, and which of them are never zero.

A transposed convolution with steps reads an input that is spread out, with zeros between its elements. Outputs that
lie as many apart as the steps meet the same taps, and the others' products are all zero: those outputs are one
*phase*, and each phase is an ordinary convolution of the input as it is with some of the taps. Pure numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

__all__ = ["Dimension", "Taps"]


@dataclass(frozen=True, slots=True)
class Taps:
    """The taps that one phase meets: tap ``first + j * tap_step`` reads ``shift + j * shift_step`` further on."""

    count: int
    first: int
    shift: int


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a convolution: output ``o`` and tap ``k`` meet at ``o * stride + k * dilation - low``.

    What lies there is element ``i`` of the input if it is ``i * spread``, and zero if it is none.
    """

    out: int
    inside: int
    """Elements of the input."""
    kernel: int
    stride: int = 1
    dilation: int = 1
    spread: int = 1
    """Distance that the input's elements are spread to; 1 where ``stride`` is not."""
    low: int = 0
    """Zeros before the input; negative where its first elements are not read."""

    @property
    def turns(self) -> int:
        """Outputs of the first phase, which has the most."""
        return -(-self.out // self.spread)

    @property
    def tap_step(self) -> int:
        """Distance between the taps of one phase."""
        return self.spread // gcd(self.dilation, self.spread)

    @property
    def shift_step(self) -> int:
        """Distance, in the input as it is, between what neighbouring taps of one phase read."""
        return self.tap_step * self.dilation // self.spread

    @property
    def phases(self) -> tuple[Taps, ...]:
        """The taps of each phase; output ``q * spread + r`` is in phase ``r`` and reads from ``q * stride`` on."""
        return tuple(self._taps(phase) for phase in range(self.spread))

    def _taps(self, phase: int) -> Taps:
        for tap in range(min(self.kernel, self.tap_step)):
            distance = phase + tap * self.dilation - self.low
            if distance % self.spread == 0:
                count = -(-(self.kernel - tap) // self.tap_step)
                return Taps(count, tap, distance // self.spread)
        return Taps(0, 0, 0)

    @property
    def shifts(self) -> tuple[int, int]:
        """The least and the largest shift of a tap of any phase."""
        ends = [
            (taps.shift, taps.shift + (taps.count - 1) * self.shift_step)
            for taps in self.phases
            if taps.count
        ]
        if not ends:
            return (0, 0)
        return min(first for first, _ in ends), max(last for _, last in ends)

    @property
    def margins(self) -> tuple[int, int]:
        """Zeros that are read before the input and after it."""
        least, largest = self.shifts
        return max(0, -least), max(0, (self.turns - 1) * self.stride + largest - (self.inside - 1))

    @property
    def products(self) -> int:
        """Pairs of an output and a tap that it meets."""
        return sum(
            taps.count * (-(-(self.out - phase) // self.spread)) for phase, taps in enumerate(self.phases)
        )

    def tap_at(self, phase: int, shift: int) -> int | None:
        """Give the tap of a phase that reads ``shift`` further on; ``None`` where it has none there."""
        taps = self.phases[phase]
        number, rest = divmod(shift - taps.shift, self.shift_step)
        return taps.first + number * self.tap_step if not rest and 0 <= number < taps.count else None
