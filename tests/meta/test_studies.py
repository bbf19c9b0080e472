"""The study of flushes runs where there is no GPU too, and its table says what was read."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

STUDY = Path(__file__).resolve().parents[2] / "studies" / "flush_kinds.py"


@pytest.fixture(scope="module")
def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flush_kinds", STUDY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_help_needs_no_device() -> None:
    done = subprocess.run([sys.executable, str(STUDY), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "What a flush leaves behind" in done.stdout


@pytest.mark.spec("T29")
@pytest.mark.parametrize("call", ["256 floats", "tileops rms_norm"])
def test_every_kind_of_flush_is_measured_on_this_cpu(
    study: ModuleType, call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys
) -> None:
    monkeypatch.setattr("kernelmark.device.cpu.cpu_eviction_bytes", lambda caches: 1 << 20)
    out = tmp_path / "found.json"
    study.main(["--device", "cpu", "--runs", "2", "--samples", "4", "--calls", call, "--json", str(out)])
    told = json.loads(out.read_text(encoding="utf-8"))
    assert (told["timer"], told["runs"], told["samples_a_run"]) == ("host", 2, 4)
    assert [each["flush"] for each in told["readings"]] == list(study.KINDS)
    assert all(len(each["runs_ns"]) == 2 and min(each["runs_ns"]) > 0 for each in told["readings"])
    *_, row = capsys.readouterr().out.splitlines()
    assert row.count("|") == len(study.KINDS) + 3


def test_the_table_shows_medians_spreads_and_what_writing_costs(study: ModuleType) -> None:
    runs = {"warm": [2e3], "writes zeros": [3e3, 5e3, 4e3], "writes, then reads": [3.2e3] * 3}
    found = {("an add", kind): values for kind, values in {**runs, "reads only": [3.2e3] * 3}.items()}
    assert list(study.lines(found))[-1] == (
        "| an add | 2.000 (one run) | 4.000 (50.00 %) | 3.200 (0.00 %) | 3.200 (0.00 %) | +25.0 % |"
    )


def test_each_kind_does_to_the_caches_what_its_name_says(study: ModuleType) -> None:
    before = study.flushes("cpu", 1 << 20)
    assert before["warm"] is None
    assert before["reads only"] is None  # kernelmark's own, which the timing loop runs
    written = before["writes zeros"].__self__
    written.fill_(1)
    before["writes, then reads"]()
    assert not written.any()
    assert written.numel() * written.element_size() == 1 << 20
