"""What every test runs under: reproducible properties, and a stated reason wherever a GPU is missing."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# Projects that tests run as a user would, benchmarks among them; they are no tests of this one.
collect_ignore = ["data"]

# In CI the same examples every time, so that a red run can be run again; at a desk new ones, so that more is
# tried. No deadline: a shared machine stalls. No database: a test leaves nothing behind.
settings.register_profile("kernelmark", deadline=None, database=None, derandomize="CI" in os.environ)
settings.load_profile("kernelmark")

# A shell without job control starts what runs in the background with interrupts ignored, and so would every program
# that a test starts, and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked ``gpu`` where there is no CUDA device; ask torch only if one is selected."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_cuda() if marked else None
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_cuda() -> str | None:
    import torch

    if torch.version.cuda is None:
        return f"needs a CUDA device; torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        return f"needs a CUDA device; torch {torch.__version__} finds none"
    return None
