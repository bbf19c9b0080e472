"""Run the tests in two halves side by side, one a core: what ``make test`` and ``make check`` call.

    python scripts/run_tests.py
    python scripts/run_tests.py --check

Without ``--check`` the tests of the compiler, of commands that call it and of kernel files are one half. With it
nothing runs that compiles (``COMPILES`` in tests/conftest.py) or needs a GPU, and what starts many programs is one
half. The output of that half is printed once the other has ended. The exit code is 0 only if both passed; each ends
with pytest's own summary.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

HALF = (
    "tests/unit/torchsched",
    "tests/cli/test_candidates.py",
    "tests/cli/test_kernelbench.py",
    "tests/cli/test_tune.py",
    "tests/cli/test_watched.py",
    "tests/unit/kernelfile",
)
"""What compiles models, and kernel files: on two cores about half of the time of all tests."""

CHECKED = (
    "tests/cli",
    "tests/meta",
    "tests/unit/launches",
    "tests/unit/pytest_plugin",
    "tests/unit/torchsched",
)
"""About half of the time of what compiles nothing."""

WAITING = {"OMP_WAIT_POLICY": "passive"}
"""How OpenMP's workers wait. By default they spin, and with two halves on two cores each spins where the other's
work should be: judging a candidate took 8 s beside the other half, and 0.8 s alone."""


def main(
    all_tests: Sequence[str] = ("tests",), half: Sequence[str] = HALF, *, options: Sequence[str] = ()
) -> int:
    """Run both halves, each with pytest's ``options``, and return the exit code."""
    pytest = [sys.executable, "-m", "pytest", *options]
    environment = {**WAITING, **os.environ}
    with tempfile.TemporaryFile() as log:
        named = ", ".join(half)
        print(f"==> test: {named}, beside the others; their output follows", flush=True)
        beside = subprocess.Popen(
            [*pytest, *half, "-p", "no:cacheprovider"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
        try:
            left_out = [f"--ignore={each}" for each in half]
            others = subprocess.run([*pytest, *all_tests, *left_out], env=environment, check=False).returncode
            code = beside.wait()
        finally:
            beside.kill()
            beside.wait()
        log.seek(0)
        print(f"==> test: {named}", flush=True)
        sys.stdout.buffer.write(log.read())
        sys.stdout.flush()
    return others or code


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(main(half=CHECKED, options=("-q", "-m", "not compiles and not gpu")))
    sys.exit(main())
