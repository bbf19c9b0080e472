"""The parameters of a case as short texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kernelmark.report.plain import visible

__all__ = ["param_texts"]


def param_texts(params: Mapping[str, Any]) -> dict[str, str]:
    """Write each parameter in one line: text as it is, everything else as JSON."""
    return {
        visible(name): visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        for name, value in params.items()
    }
