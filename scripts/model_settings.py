"""Run every shipped model in each setting that changes how it is compiled, and say whether its answer is right.

    python scripts/model_settings.py
    python scripts/model_settings.py avx2 one-core --models 8_softmax 1_mlp

Two settings compare the two ways in, `import` and `torch-compile`, bit for bit and within the check, in f32 and in
bf16. The others take something away: the OpenMP runtime, AVX-512, all vector features, threads, cores. There the
engine's check of `kernelmark model` decides, and a line must say why the schedule is a slower one. Each setting has
a process of its own. The exit code is 0 only if everything is right.
"""

from __future__ import annotations

import argparse
import ctypes.util
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MODELS = Path(__file__).resolve().parents[1] / "examples" / "KernelBench" / "models"


@dataclass(frozen=True)
class Setting:
    """One way to compile, what prepares a process for it, and what the line that it must say begins with."""

    prepare: Callable[[], None] = lambda: None
    element: str | None = None
    feature: str | None = None
    threads: int | None = None
    says: str = ""


def hide_openmp() -> None:
    """Let this process find no OpenMP runtime, as where none is installed."""
    found, library = importlib.metadata.distribution, ctypes.util.find_library

    def distribution(name: str) -> importlib.metadata.Distribution:
        if "omp" in name or "openmp" in name:
            raise importlib.metadata.PackageNotFoundError(name)
        return found(name)

    importlib.metadata.distribution = distribution
    ctypes.util.find_library = lambda name: None if "omp" in name else library(name)


def keep_one_core() -> None:
    """Leave this process one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


SETTINGS = {
    "modes-f32": Setting(element="f32"),
    "modes-bf16": Setting(element="bf16"),
    "no-openmp": Setting(hide_openmp, threads=2, says="one thread rather than 2: no OpenMP runtime"),
    "avx2": Setting(feature="avx2", says="vectors of 256 bits rather than 512"),
    "no-feature": Setting(feature="none", says="vectors of 128 bits rather than 512"),
    "one-thread": Setting(threads=1, says="one thread"),
    "one-core": Setting(keep_one_core, says="one thread: this process may use one core"),
}


def models_named(names: Sequence[str]) -> list[Path]:
    """Give the shipped models, or those of these names."""
    found = sorted(
        MODELS.glob("level*/*.py"), key=lambda path: (path.parent.name, int(path.stem.split("_")[0]))
    )
    if unknown := set(names) - {path.stem for path in found}:
        raise SystemExit(
            f"no model {', '.join(sorted(unknown))}; there are {', '.join(p.stem for p in found)}"
        )
    return [path for path in found if not names or path.stem in names]


def run_setting(name: str, models: Sequence[Path]) -> int:
    """Run the models in this process, and give the number of those that are not right."""
    setting = SETTINGS[name]
    setting.prepare()
    look = compare_modes if name.startswith("modes") else check
    wrong = 0
    for path in models:
        right, said = look(path, setting)
        wrong += not right
        print(f"{name:11} {path.parent.name}/{path.stem:28} {'' if right else 'WRONG: '}{said}", flush=True)
    print(f"{name:11} {len(models) - wrong} of {len(models)} right", flush=True)
    return wrong


def check(path: Path, setting: Setting) -> tuple[bool, str]:
    """Let the engine check one model, and look for the line."""
    from kernelmark.errors import KernelmarkError
    from kernelmark.models import ModelRequest, run_model
    from kernelmark.records import Check

    told: list[str] = []
    try:
        found = run_model(
            ModelRequest(path, feature=setting.feature, threads=setting.threads), tell=told.append
        )
    except KernelmarkError as error:
        return False, str(error).partition("\n")[0]
    row = found.ours
    line = next((each for each in told if each.startswith(setting.says)), None)
    recorded = line is not None and line in str(row.params.get("notes", ""))
    # an unverified answer is the reference's too; the check is one that wrong answers pass as well
    if row.check not in (Check.VERIFIED, Check.UNVERIFIED):
        return False, f"{row.check}: {row.note}"
    return recorded, f"{row.check}, {row.backend}" if recorded else f"no line says {setting.says!r}: {told}"


def compare_modes(path: Path, setting: Setting) -> tuple[bool, str]:
    """Compile one model in both ways, and compare what they give for the same parameters and inputs."""
    import copy

    import torch
    from torch.utils import _pytree as pytree

    from torchsched.backend import Backend
    from torchsched.building import build
    from torchsched.elements import Element
    from torchsched.ingress import load_model

    torch._dynamo.reset()
    element = Element.parse(setting.element or "f32")
    loaded = load_model(path, element=element)
    model, inputs, backend = loaded.model.eval(), loaded.inputs, Backend()
    # torch.compile leaves a recurrent layer to eager unless it is told otherwise, as the command tells it
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        eager = copy.deepcopy(model)(*copy.deepcopy(inputs))
        graphs = torch.compile(copy.deepcopy(model), backend=backend)(*copy.deepcopy(inputs))
    if not backend.subgraphs or any(each.reason for each in backend.subgraphs):
        return False, "a graph was not compiled"
    built = build(model, inputs)
    bound = built.compiled.bind([each.clone() for each in built.imported.arguments(inputs)])
    bound()
    whole = built.imported.assemble(bound.results)
    tolerance = 2e-2 if element is Element.BF16 else 1e-4
    equal, apart = True, 0.0
    for one, other, reference in zip(*map(pytree.tree_leaves, (whole, graphs, eager)), strict=True):
        equal = equal and torch.equal(one, other)
        for left, right in ((one, other), (one, reference), (other, reference)):
            error, size = (left.double() - right.double()).square().mean(), right.double().square().mean()
            apart = max(apart, (error / size.clamp(min=1e-30)).sqrt().item())
    said = "bit for bit" if equal else "within the check"
    return apart <= tolerance, f"{said}; RMS error of all pairs, eager's too, at most {apart:.1e}"


def main() -> int:
    """Run, print, and give the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", help=f"of {', '.join(SETTINGS)} (all)")
    parser.add_argument("--models", nargs="+", default=[], help="names such as 8_softmax (all)")
    parser.add_argument("--here", action="store_true", help="run the one setting in this process")
    asked = parser.parse_args()
    if unknown := set(asked.settings) - set(SETTINGS):
        parser.error(f"no setting {', '.join(sorted(unknown))}; there are {', '.join(SETTINGS)}")
    models = models_named(asked.models)
    if asked.here:
        return int(run_setting(asked.settings[0], models) > 0)
    codes = [
        subprocess.run(
            [sys.executable, __file__, name, "--here", "--models", *(path.stem for path in models)],
            check=False,
        ).returncode
        for name in asked.settings or SETTINGS
    ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
