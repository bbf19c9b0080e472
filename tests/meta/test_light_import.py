"""What an import costs: the package root brings in nothing, the command line no framework."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
FRAMEWORKS = {"torch", "triton", "numpy", "pynvml", "cupti", "liger_kernel", "pytest", "torch_mlir"}

_LOADED_BY = """
import json, sys
before = set(sys.modules)
import {module}
print(json.dumps(sorted({{name.partition(".")[0] for name in set(sys.modules) - before}})))
"""

_EACH_ALONE = """
import importlib, json, sys, traceback
failures = {}
for name in json.load(sys.stdin):
    for loaded in [known for known in sys.modules if known.partition(".")[0] == "kernelmark"]:
        del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except Exception:
        failures[name] = traceback.format_exc(limit=-3)
print(json.dumps(failures))
"""


def _python(program: str, *, standard_input: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], input=standard_input, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _loaded_by(module: str) -> set[str]:
    return set(json.loads(_python(_LOADED_BY.format(module=module))))


def test_importing_the_root_brings_in_the_standard_library_only() -> None:
    assert _loaded_by("kernelmark") - set(sys.stdlib_module_names) == {"kernelmark"}


@pytest.mark.parametrize(
    "module",
    [
        "kernelmark.cli",
        "kernelmark.stats",
        "kernelmark.records",
        "kernelmark.report",
        "kernelmark.manifest",
        "kernelmark.launches",
        "torchsched",
        "torchsched.descriptors",
        "kernelmark.models",
        "torchsched.lowering",
    ],
)
def test_what_needs_no_framework_imports_none(module: str) -> None:
    assert not _loaded_by(module) & FRAMEWORKS


def test_asking_for_help_imports_no_framework() -> None:
    program = (
        "import sys, kernelmark.cli\n"
        "try:\n    kernelmark.cli.main(['--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = _python(program).partition("LOADED")[2].split()
    assert "click" in loaded
    assert not set(loaded) & FRAMEWORKS


def test_each_module_can_be_the_first_one_imported() -> None:
    names = [
        ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted((SOURCE / "kernelmark").rglob("*.py"))
    ]
    failures = json.loads(_python(_EACH_ALONE, standard_input=json.dumps(names)))
    assert not failures, "\n".join(failures.values())
