"""Run all tests in two halves side by side, one a core: what ``make test`` calls where no test is named.

    python scripts/run_tests.py

The compiler's tests, and those of commands that call it, run beside the others, and their output is printed once
those have ended. The exit code is 0 only if both halves passed; each half ends with pytest's own summary.
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
)
"""What compiles models: on two cores about half of the time of all tests, 9 minutes."""

WAITING = {"OMP_WAIT_POLICY": "passive"}
"""How OpenMP's workers wait. By default they spin, and with two halves on two cores each spins where the other's
work should be: judging a candidate took 8 s beside the other half, and 0.8 s alone."""


def main(all_tests: Sequence[str] = ("tests",), half: Sequence[str] = HALF) -> int:
    """Run both halves and return the exit code."""
    pytest = [sys.executable, "-m", "pytest"]
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
    sys.exit(main())
