"""Make the development environment: what ``make setup`` calls, with the Python it shall have.

It knows the folder, the extras that fit this machine, and the few system packages that torch's compiler
needs. It imports the standard library only, and uses no syntax newer than f-strings, so that a Python that
is too old is told so instead of failing to parse. A second call changes nothing and takes a moment.
"""

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

OLDEST = (3, 11)
ROOT = Path(__file__).resolve().parent.parent
INPUTS = ("pyproject.toml", "constraints.txt", "scripts/setup_env.py")


def main(folder: str) -> int:
    """Bring the environment in ``folder`` up to date and return the exit code."""
    found = platform.python_version()
    if sys.version_info < OLDEST:
        say(
            f"kernelmark needs Python {OLDEST[0]}.{OLDEST[1]} or newer; {sys.executable} is {found}. "
            "Say which to use: make PYTHON=/path/to/python3.11 ..."
        )
        return 2
    ensure_compiler()
    environment = ROOT / folder
    extras = fitting_extras()
    stamp, wanted = environment / "kernelmark-setup.sha256", fingerprint(environment, extras)
    if stamp.is_file() and stamp.read_text() == wanted:
        say(f"{folder} is up to date")
        return 0
    say(f"{folder}: Python {found}, extras {extras}, versions from constraints.txt")
    create(environment)
    install(environment, extras)
    stamp.write_text(wanted)
    say(f"{folder} is ready")
    return 0


def say(text: str) -> None:
    """Print one step."""
    print(f"==> setup: {text}", flush=True)


def fitting_extras() -> str:
    """Name the extras for this machine: Triton and torch-mlir have wheels for Linux only, CUDA wants a GPU."""
    extras = ["dev"]
    if sys.platform == "linux":
        extras += ["triton", "mlir"]
    if has_nvidia_gpu():
        extras += ["cuda", "liger"]
    return ",".join(extras)


def has_nvidia_gpu() -> bool:
    """Say whether the driver lists at least one GPU."""
    if shutil.which("nvidia-smi") is None:
        return False
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False)
    return listed.returncode == 0 and b"GPU " in listed.stdout


def fingerprint(environment: Path, extras: str) -> str:
    """Digest what decides the content of the environment; its place too, as a moved one is broken."""
    digest = hashlib.sha256()
    for part in (str(environment), sys.version, extras):
        digest.update(part.encode() + b"\0")
    for name in INPUTS:
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def create(environment: Path) -> None:
    """Make the virtual environment, from nothing unless it is there with this very Python."""
    python = environment / "bin" / "python"
    if python.exists():
        asked = [str(python), "-c", "import sys; print(sys.version, end='')"]
        if subprocess.run(asked, capture_output=True, check=False).stdout.decode() == sys.version:
            return
        say("it has another Python, or one that does not run: making it again")
    command = [sys.executable, "-m", "venv", "--clear", str(environment)]
    if importlib.util.find_spec("ensurepip") is None:
        # Some distributions ship venv without ensurepip; the pip outside then installs into the environment.
        command.insert(3, "--without-pip")
    subprocess.run(command, check=True)


def install(environment: Path, extras: str) -> None:
    """Install the project, editable, with its extras."""
    python = str(environment / "bin" / "python")
    own = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
    pip = [python, "-m", "pip"] if own else [sys.executable, "-m", "pip", "--python", python]
    options = ["--progress-bar", "off", "--disable-pip-version-check", "-c", "constraints.txt"]
    subprocess.run([*pip, "install", *options, "-e", f".[{extras}]"], cwd=str(ROOT), check=True)


def ensure_compiler() -> None:
    """Have a C++ compiler and Python's headers, with which torch.compile builds its CPU kernels.

    As root on Debian they are installed; elsewhere a line says what to install, and the setup goes on.
    """
    missing = {}
    if not (os.environ.get("CXX") or any(map(shutil.which, ("g++", "clang++", "c++")))):
        missing["a C++ compiler"] = "g++"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        missing["Python's headers"] = f"python{sys.version_info[0]}.{sys.version_info[1]}-dev"
    if not missing:
        return
    what = " and ".join(missing)
    command = "apt-get install -y --no-install-recommends " + " ".join(missing.values())
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        say(f"{what}: not found, and torch.compile needs it on the CPU. Install it (on Debian: {command})")
        return
    say(f"{what}: not found; {command}")
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for step in ("apt-get update", command):
        done = subprocess.run([*step.split(), "-q"], env=quiet, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            say(f"{step} ended with {done.returncode}; going on without {what}")
            return


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ".venv"))
    except subprocess.CalledProcessError as error:
        say(f"{' '.join(error.cmd)} ended with {error.returncode}")
        sys.exit(1)
