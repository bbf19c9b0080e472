"""The processes of an audit: real ones on this CPU, and a stand-in where the program is ncu."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from kernelmark.audit import AuditOptions, audit, run
from kernelmark.audit.result import Audit, Reading
from kernelmark.audit.work import Request
from kernelmark.device import CpuDevice, FakeDevice
from kernelmark.errors import RecordError, UsageError
from kernelmark.isolation import Channel

DATA = Path(__file__).parents[2] / "data" / "audit"
WARM = ("host-warm", "torch-timer")


def cuda() -> FakeDevice:
    """A device of that kind whose calls nobody makes: what reads them is another process."""
    return FakeDevice(kind="cuda", torch_name="cuda:0", default_timer="cupti")


def statuses(found: Audit) -> dict[str, str]:
    return {line.instrument.name: line.status for line in found.lines}


def test_on_this_cpu_two_instruments_read_the_five_calls_in_another_process() -> None:
    told: list[str] = []
    found = audit(CpuDevice(), AuditOptions(runs=2, only=WARM), told=told.append)
    assert told == ["host-warm, torch-timer"]
    assert statuses(found) == {"host-warm": "read", "torch-timer": "read"}
    assert (found.reference, found.doubts) == ("torch-timer", ())
    for call in found.setting.calls:
        ours, theirs = (found.cell(call.name, name) for name in WARM)
        assert len(ours.runs_ns) == len(theirs.runs_ns) == 2
        assert ours.bias is not None
        # loose: other work on the machine is in both, and what is tested is that both read the same call
        assert 1 / 20 < ours.median_ns / theirs.median_ns < 20  # type: ignore[operator]
        assert ours.cost_s is not None
        assert ours.samples is not None
        assert ours.samples >= 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            AuditOptions(only=("torch-time",)),
            "no instrument 'torch-time' for cpu; did you mean 'torch-timer'",
        ),
        (AuditOptions(against="ncu"), "no instrument 'ncu' for cpu"),
        (AuditOptions(only=("host",), against="torch-timer"), "is not among those that read"),
    ],
)
def test_what_no_run_could_do_is_refused_before_anything_is_started(
    options: AuditOptions, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Worker", None)
    with pytest.raises(UsageError, match=message):
        audit(CpuDevice(), options)


@pytest.mark.parametrize("runs", [0, -1, True, 1.5])
def test_a_number_of_runs_that_is_none_is_refused(runs: object) -> None:
    with pytest.raises(UsageError, match="whole number of at least 1"):
        AuditOptions(runs=runs)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_made_is_found_out_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Worker", None)
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="choose another place"):
        audit(CpuDevice(), AuditOptions(only=WARM, keep=tmp_path / "file" / "below"))


def reads_one_and_dies(request: Request, channel: Channel) -> None:
    channel.tell(Reading("host-warm", "add of 256 floats", 0, 1000.0))
    print("the last words", flush=True)
    os._exit(7)


def hangs(request: Request, channel: Channel) -> None:
    time.sleep(600)


def raises(request: Request, channel: Channel) -> None:
    raise ZeroDivisionError("of the call's own")


def test_a_process_that_dies_leaves_what_it_had_read_and_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_TARGET", f"{__name__}:reads_one_and_dies")
    found = audit(CpuDevice(), AuditOptions(runs=2, only=WARM, keep=tmp_path))
    assert found.cell("add of 256 floats", "host-warm").runs_ns == (1000,)
    reason = "its process ended with status 7; its last line: the last words"
    assert statuses(found) == {"host-warm": "read", "torch-timer": f"no reading: {reason}"}
    assert f"host-warm did not read to the end: {reason}" in found.doubts
    assert (tmp_path / "host-warm-torch-timer.txt").read_text() == "the last words\n"


def test_what_a_call_raises_is_told_of_every_instrument_of_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "_TARGET", f"{__name__}:raises")
    found = audit(CpuDevice(), AuditOptions(only=WARM))
    assert set(statuses(found).values()) == {"no reading: ZeroDivisionError: of the call's own"}


def test_a_process_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_TARGET", f"{__name__}:hangs")
    monkeypatch.setattr(run, "_LIMIT_S", 1.0)
    found = audit(CpuDevice(), AuditOptions(only=("host-warm",)))
    assert statuses(found)["host-warm"].startswith("no reading: it did not end within 1 s")


# --- ncu, whose part is played by a program that leaves a table -----------------------------------------


def stand_in(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program called ncu on the PATH, which finds the file that ncu would write in ``log``."""
    script = folder / "ncu"
    script.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, shutil, sys\n"
        "if '--version' in sys.argv:\n"
        "    raise SystemExit(print('NVIDIA (R) Nsight Compute\\nVersion 2025.3.0.0 (build 1)'))\n"
        "log = pathlib.Path(sys.argv[sys.argv.index('--log-file') + 1])\n"
        f"{body}\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def ncu_options(**more: object) -> AuditOptions:
    return AuditOptions(runs=2, only=("ncu",), **more)  # type: ignore[arg-type]


def test_ncus_table_becomes_readings_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_three = partial(run.Sections, launches=3)  # as the table in tests/data was made
    monkeypatch.setattr(run, "Sections", of_three)
    stand_in(tmp_path, f"shutil.copyfile({str(DATA / 'ncu.csv')!r}, log)", monkeypatch)
    found = audit(cuda(), ncu_options(keep=tmp_path / "kept"))
    assert statuses(found) == {"ncu": "read"}
    assert found.reference == "ncu"
    assert found.setting.versions == {"ncu": "2025.3.0.0"}
    assert found.cell("add of 256 MiB", "ncu").runs_ns == (124512, 124576)
    assert (tmp_path / "kept" / "ncu.csv").read_text() == (DATA / "ncu.csv").read_text()


def test_what_ncu_refuses_is_unavailable_in_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        tmp_path, "log.write_text('==ERROR== ERR_NVGPUCTRPERM: no permission\\n'); sys.exit(1)", monkeypatch
    )
    assert statuses(audit(cuda(), ncu_options()))["ncu"] == "unavailable: ERR_NVGPUCTRPERM: no permission"


def test_a_table_that_is_not_what_was_launched_is_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "log.write_text('==PROF== nothing\\n')", monkeypatch)
    found = audit(cuda(), ncu_options())
    assert statuses(found)["ncu"] == "no reading: ncu wrote no table (and no error)"
    assert found.doubts


def test_an_ncu_that_dies_without_a_word_is_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "sys.exit('out of luck')", monkeypatch)
    status = statuses(audit(cuda(), ncu_options()))["ncu"]
    assert status == "no reading: its process ended with status 1; its last line: out of luck"


def test_a_machine_without_ncu_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = audit(cuda(), ncu_options())
    assert statuses(found)["ncu"].startswith("unavailable: ncu is not on the PATH")
    assert found.doubts == ()
