"""What every test runs under: reproducible properties, and a stated reason wherever a GPU is missing."""

from __future__ import annotations

import gc
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


COMPILES = (
    "cli/test_audit.py",
    "cli/test_calibrate.py",
    "cli/test_candidates.py",
    "cli/test_kernel.py",
    "cli/test_kernelbench.py",
    "cli/test_model.py",
    "cli/test_tune.py",
    "cli/test_watched.py",
    "meta/test_docs.py::test_a_snippet_that_is_marked_to_run_runs",
    "meta/test_two_gpus.py",
    "unit/benchmarks/",
    "unit/calibration/test_ceilings.py",
    "unit/calibration/test_processor.py",
    "unit/harness/test_baselines.py",
    "unit/harness/test_elsewhere.py",
    "unit/kernelbench/candidates/test_judging.py",
    "unit/kernelfile/test_building.py",
    "unit/kernelfile/test_examples.py",
    "unit/kernelfile/test_libraries.py",
    "unit/kernelfile/test_run.py",
    "unit/kernelfile/test_second_check.py",
    "unit/kernelfile/test_starting.py",
    "unit/kernelfile/test_sweep.py",
    "unit/launches/test_torch_ranks.py",
    "unit/models/",
    "unit/torchsched/",
)
"""Below here: what compiles by MLIR, inductor or a C++ compiler, and the few others that take as long as it does."""

COMPILES_NOTHING = (
    "unit/models/test_request.py",
    "unit/models/tuning/test_book.py",
    "unit/models/tuning/test_search.py",
    "unit/models/tuning/test_space.py",
    "unit/torchsched/descriptors/",
    "unit/torchsched/ingress/test_flops.py",
    "unit/torchsched/ingress/test_model_file.py",
    "unit/torchsched/ingress/test_shapes.py",
    "unit/torchsched/test_elements.py",
    "unit/torchsched/test_heap.py",
    "unit/torchsched/test_signature.py",
    "unit/torchsched/test_targets.py",
    "unit/torchsched/transforms/conv/",
    "unit/torchsched/transforms/gemm/",
    "unit/torchsched/transforms/vectors/test_accesses.py",
    "unit/torchsched/transforms/vectors/test_grouping.py",
    "unit/torchsched/transforms/vectors/test_nests.py",
    "unit/torchsched/transforms/vectors/test_plans.py",
    "unit/torchsched/transforms/vectors/test_staging.py",
)
"""Of these folders, what is computed without a compiler."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test of COMPILES, before the command line picks by marker."""
    below = item.nodeid.removeprefix("tests/")
    if below.startswith(COMPILES) and not below.startswith(COMPILES_NOTHING):
        item.add_marker("compiles")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked ``gpu`` where there is no CUDA device; ask torch only if one is selected."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    reason = _why_no_cuda() if marked else None
    if reason:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Let no later collection look through what has been imported: torch's modules are half a million objects."""
    gc.collect()
    gc.freeze()


def _why_no_cuda() -> str | None:
    import torch

    if torch.version.cuda is None:
        return f"needs a CUDA device; torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        return f"needs a CUDA device; torch {torch.__version__} finds none"
    return None
