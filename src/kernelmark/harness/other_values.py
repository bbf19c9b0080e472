"""Calls of an implementation on other values at the same addresses, before the check on the values proper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelmark.device import Device
from kernelmark.harness.case import Case
from kernelmark.harness.implementation import Implementation
from kernelmark.text import in_short
from kernelmark.verify import InputGuard, StaleGuard, fingerprint

__all__ = ["OtherValues", "run_once"]


class OtherValues:
    """Calls on other values, and what they gave.

    Args:
        implementation: What is called.
        case: Whose inputs it shares with others.
        shared: Brings those inputs back.
        device: Where it runs.

    Attributes:
        must_tell: Whether an answer that stays the same says something: what runs on values of its own, or resets
            them, does not see others.
        refused: What calls raised.
    """

    def __init__(
        self, implementation: Implementation, case: Case, shared: InputGuard, device: Device
    ) -> None:
        self._implementation, self._case, self._shared, self._device = implementation, case, shared, device
        self._private = InputGuard(implementation.args or ())
        self._stale = StaleGuard((case.inputs, implementation.args or ()), seed=case.seed)
        seen = shared if implementation.args is None else self._private
        self.must_tell = implementation.reset is None and seen.holds_values
        self.refused: list[str] = []

    @property
    def kinds(self) -> tuple[Callable[[], tuple[str, ...]], ...]:
        """Ways to change values; the second and third are for an answer that the one before left as it was."""
        stale = self._stale
        return (stale.draw, stale.rescale, stale.draw_integers) if self.must_tell else (stale.draw,)

    def call(self, kind: Callable[[], tuple[str, ...]]) -> tuple[Any, ...] | None:
        """Call on other values and then on two that changed places; give what the first call gave.

        ``None`` where no value is of this kind, or the call raised.
        """
        given = self._call_once(kind)
        if given is not None:
            self._call_once(self._stale.nudge)
        return given

    def _call_once(self, change: Callable[[], tuple[str, ...]]) -> tuple[Any, ...] | None:
        try:
            if not change():
                return None
            return fingerprint(run_once(self._implementation, self._case.inputs, self._device))
        except Exception as error:  # noqa: BLE001 - an op may refuse values that were only changed
            self.refused.append(
                f"it was not called on other values first: it raised {in_short(error)} on them"
            )
            return None
        finally:
            self._shared.restore()
            self._private.restore()


def run_once(implementation: Implementation, inputs: tuple[Any, ...], device: Device) -> Any:
    """Reset, call, and wait until the device is done; give what the call gave."""
    if implementation.reset is not None:
        implementation.reset()
    outputs = implementation.run(*(inputs if implementation.args is None else implementation.args))
    device.synchronize()
    return outputs
