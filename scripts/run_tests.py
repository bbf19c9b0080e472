"""Run all tests in two halves side by side, one a core: what ``make test`` calls where no test is named.

    python scripts/run_tests.py

The compiler's tests run beside the others, and their output is printed once those have ended. The exit code is 0
only if both halves passed; each half ends with pytest's own summary.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence

HALF = "tests/unit/mlir"
"""A quarter of the tests, and on two cores about a third of their time."""


def main(all_tests: Sequence[str] = ("tests",), half: str = HALF) -> int:
    """Run both halves and return the exit code."""
    pytest = [sys.executable, "-m", "pytest"]
    with tempfile.TemporaryFile() as log:
        print(f"==> test: {half}, beside the others; its output follows theirs", flush=True)
        beside = subprocess.Popen(
            [*pytest, half, "-p", "no:cacheprovider"], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            others = subprocess.run([*pytest, *all_tests, f"--ignore={half}"], check=False).returncode
            code = beside.wait()
        finally:
            beside.kill()
            beside.wait()
        log.seek(0)
        print(f"==> test: {half}", flush=True)
        sys.stdout.buffer.write(log.read())
        sys.stdout.flush()
    return others or code


if __name__ == "__main__":
    sys.exit(main())
