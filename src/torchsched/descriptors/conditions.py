"""Under which circumstances a step is taken: ``when: parallel``, ``when: not avx512``, ``when: uses tm_tensor``.

A condition on the target is decided when a schedule is loaded, one on the module when it is lowered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelmark.text import suggestion
from torchsched.targets import Architecture, Feature, Target

__all__ = ["Condition", "parse_condition"]

_USES = "uses"
_PARALLEL = "parallel"
_DIALECT = re.compile(r"[a-z][a-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Condition:
    """What must hold for a step to be taken."""

    text: str
    subject: str
    """``parallel``, a feature, an architecture, or the dialect that the module must use."""
    negated: bool = False
    of_module: bool = False
    """Whether it asks for what the module holds, rather than for the target."""

    def allows(self, target: Target) -> bool:
        """Whether the step may be taken for ``target``; one that depends on the module may."""
        if self.of_module:
            return True
        holds = (
            target.parallel
            if self.subject == _PARALLEL
            else self.subject == target.name or self.subject in target.features
        )
        return holds != self.negated

    def holds(self, dialects: frozenset[str]) -> bool:
        """Whether a module with operations of ``dialects`` is one for this step."""
        return not self.of_module or (self.subject in dialects) != self.negated


def parse_condition(text: str) -> Condition:
    """Read a condition.

    Raises:
        ValueError: it is none; the message says what there is.
    """
    words = text.split()
    negated = words[:1] == ["not"]
    rest = words[1:] if negated else words
    if len(rest) == 2 and rest[0] == _USES and _DIALECT.match(rest[1]):
        return Condition(text, rest[1], negated, of_module=True)
    known = [_PARALLEL, *Feature, *Architecture]
    if len(rest) == 1 and rest[0] in known:
        return Condition(text, rest[0], negated)
    hint = suggestion(rest[0] if rest else "", known, there_are="conditions")
    raise ValueError(f"{text!r} is no condition; {hint}, or 'uses DIALECT'; 'not' may stand before each")
