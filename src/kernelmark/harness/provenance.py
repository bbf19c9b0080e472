"""Where and with what a run is made: versions, revision, host."""

from __future__ import annotations

import hashlib
import platform
import re
import secrets
import socket
import subprocess
import sys
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from kernelmark.records import Environment

__all__ = ["environment", "now", "run_name"]

# What can change a number or an answer; a distribution that is not installed is left out.
_LIBRARIES = (
    "torch",
    "torch-mlir",
    "cmeel-libomp",
    "intel-openmp",
    "triton",
    "numpy",
    "cupti-python",
    "nvidia-ml-py",
    "nvidia-cuda-cupti",
    "nvidia-cublas",
    "nvidia-cudnn-cu13",
    "liger-kernel",
    "vllm",
    "sglang",
    "sgl-kernel",
    "flashinfer-python",
)

_RUN_NAME = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


def now() -> str:
    """Give the time as ISO 8601, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def run_name(folder: Path | str | None = None) -> str:
    """Name a run so that names sort by time and two of one second differ; as its folder, where that has such a name."""
    name = Path(folder).name if folder is not None else ""
    if _RUN_NAME.fullmatch(name):
        return name
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


@lru_cache(maxsize=8)
def environment(folder: Path | None = None) -> Environment:
    """Describe this process's environment, with the revision of what is in ``folder``, or in the working folder."""
    revision, dirty = _git(folder or Path.cwd())
    return Environment(
        kernelmark=_version("kernelmark") or "not installed",
        python=platform.python_version(),
        platform=platform.platform(),
        libraries={name: found for name in _LIBRARIES if (found := _version(name))},
        git_revision=revision,
        git_dirty=dirty,
        hostname_hash=hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12],
    )


def _version(name: str) -> str | None:
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
    # torch's own string tells the build ("2.13.0+cpu"), which its metadata may leave out
    loaded = sys.modules.get(name)
    return str(getattr(loaded, "__version__", found)) if name == "torch" and loaded else found


def _git(folder: Path) -> tuple[str | None, bool | None]:
    def run(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *arguments],
                capture_output=True,
                text=True,
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    revision = run("rev-parse", "HEAD")
    if revision is None:
        return None, None
    status = run("status", "--porcelain", "--untracked-files=no")
    return revision, None if status is None else bool(status)
