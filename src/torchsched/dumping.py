"""Machine code written down: as an object file, and as text through a disassembler of the system's."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from kernelmark import probe
from kernelmark.errors import UnavailableError, UsageError
from torchsched.failures import Stage, failure

__all__ = ["assembly", "disassembler", "dump_object"]

_PROGRAMS = ("objdump", "llvm-objdump")
# -r names what a call goes to: the JIT's code calls through an address that the linker fills in
_OPTIONS = ("-d", "-r", "--no-show-raw-insn")


def dump_object(engine: Any, path: Path) -> Path:
    """Write the engine's code as an object file, in whole or not at all, and give its path.

    Raises:
        UsageError: nothing can be written there.
        ModelCompileError: the engine has no object to give.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "code.o"
        engine.dump_to_object_file(
            str(made)
        )  # says on descriptor 2 what goes wrong, and returns all the same
        if not made.is_file() or not made.stat().st_size:
            raise failure(Stage.COMPILE, "the engine gave no object file")
        try:
            shutil.copyfile(made, path)
        except OSError as error:
            raise UsageError(f"cannot write the object file {path}: {error.strerror}") from error
    return path


def assembly(engine: Any) -> str:
    """Give the engine's code as text.

    Raises:
        UnavailableError: there is no disassembler, or it cannot read the code.
    """
    found = disassembler()
    if not found:
        raise UnavailableError(f"assembly cannot be shown: {found.detail}; --dump-object needs none")
    with tempfile.TemporaryDirectory() as folder:
        path = dump_object(engine, Path(folder) / "code.o")
        done = subprocess.run(
            [found.detail, *_OPTIONS, str(path)],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    if done.returncode:
        raise UnavailableError(f"{found.detail} could not read the object file: {done.stderr.strip()}")
    return done.stdout.replace(str(path), f"{path.name}")


def disassembler() -> probe.Probe:
    """Find a disassembler."""
    looked = [probe.program(name, fix="install binutils or llvm") for name in _PROGRAMS]
    return next((each for each in looked if each), looked[0])
