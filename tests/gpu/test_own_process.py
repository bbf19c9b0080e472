"""A comparison, and a bench, whose profiler cannot follow another one: moved whole, on a real device."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

PROGRAM = """
import json, sys
from functools import partial
import torch
import kernelmark
from kernelmark.harness import SessionOptions
from kernelmark.timing import Budget, TimingOptions, bench_kernel

budget = Budget(warmup_ms=2, sample_ms=5, min_count=4, blocks=2)
x = torch.randn(1 << 26, device="cuda")
first = bench_kernel(lambda: torch.neg(x), timer="kineto", options=TimingOptions(budget=budget))
options = SessionOptions(timer="proton", budget=budget, ceilings=False)
rows = kernelmark.compare({"a": torch.neg, "b": torch.Tensor.neg}, inputs=(x,), reference=torch.neg, options=options)
launched = kernelmark.bench({"a": partial(torch.neg, x)}, timer="proton", warmup=2, repeat=5, cooldown_s=0)
refused = {}
for name, run in {
    "compare": lambda: kernelmark.compare({"mine": lambda x: -x}, inputs=(x,), reference=torch.neg, options=options),
    "bench": lambda: kernelmark.bench({"mine": lambda: -x}, timer="proton", cooldown_s=0),
}.items():
    try:
        run()
    except kernelmark.errors.InstrumentConflictError as error:
        refused[name] = str(error)
print("FOUND", json.dumps({
    "first": first.device_busy.median_ns,
    "rows": [
        (row.check, row.timing.timer, row.timing.device_busy.median_ns, list(map(note_text, row.notes)))
        for row in rows
    ],
    "ratio": rows.ratio("b").value,
    "launched": launched["impls"]["a"],
    "own_process": launched["benchmark_protocol"]["own_process"],
    "refused": refused,
}))
"""


@pytest.mark.spec("X7", "T33")
def test_after_kineto_proton_reads_in_a_process_of_its_own_or_refuses_by_name() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import kernelmark.errors\nfrom kernelmark.report.notes import note_text\n" + PROGRAM,
        ],
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    found = json.loads(line.removeprefix("FOUND "))
    assert 100_000 < found["first"] < 200_000
    for check, timer, busy, notes in found["rows"]:
        assert (check, timer) == ("verified", "proton")
        assert busy == pytest.approx(found["first"], rel=0.05)
        assert "checked and timed in a process of its own" in notes[-1]
        assert "torch.profiler came first" in notes[-1]
    assert found["ratio"] == pytest.approx(1, abs=0.05)
    assert found["launched"] * 1e3 == pytest.approx(found["first"], rel=0.05)
    assert "torch.profiler came first" in found["own_process"]
    assert "the implementation 'mine' cannot be sent" in found["refused"]["compare"]
    assert "funcs['mine'] cannot be sent" in found["refused"]["bench"]
    assert all("torch.profiler came first" in text for text in found["refused"].values())
