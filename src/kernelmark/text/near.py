"""Words for "you wrote this, did you mean that": near names, and lists of what there is.

Knows nothing of manifests; it only turns a name and the names there are into the end of a sentence.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["listing", "suggestion"]

_SHOWN = 12  # a longer list is no help in an error message


def listing(names: Iterable[object]) -> str:
    """Write names as ``a, b, c``, cut after a dozen; ``none`` where there are none."""
    known = [str(name) for name in names]
    if not known:
        return "none"
    rest = len(known) - _SHOWN
    return ", ".join(known[:_SHOWN]) + (f", and {rest} more" if rest > 0 else "")


def suggestion(name: str, known: Iterable[str], *, there_are: str) -> str:
    """Say which names are near ``name``, and which there are: ``did you mean 'K'? dims: B, K, M``.

    Args:
        name: What was written.
        known: What could have been written.
        there_are: What the known names are called.
    """
    names = [str(each) for each in known]  # a StrEnum's member prints as its text, and its repr does not
    # Case first: 'k' for 'K' scores nothing in difflib, and is the most common slip of all.
    near = [n for n in names if n.lower() == name.lower()] or difflib.get_close_matches(name, names, n=3)
    question = f"did you mean {' or '.join(repr(n) for n in near)}? " if near else ""
    return f"{question}{there_are}: {listing(names)}"
