"""Nsight Compute's table, read with no device.

``tests/data/audit/ncu_h200.csv`` was recorded; ``ncu.csv`` is short, written as ncu writes it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmark.audit.instruments import calls_for
from kernelmark.audit.ncu import Sections, errors_in, find_ncu, ncu_command, parse_ncu
from kernelmark.errors import TimingError

TEXT = (Path(__file__).parents[2] / "data" / "audit" / "ncu.csv").read_text(encoding="utf-8")
NAMES = tuple(call.name for call in calls_for("cuda"))
SECTIONS = Sections(NAMES, runs=2, launches=3)


def changed(old: str, new: str, *, count: int = -1) -> str:
    assert old in TEXT
    return TEXT.replace(old, new, count)


def without_row(number: int) -> str:
    return "".join(line for line in TEXT.splitlines(keepends=True) if not line.startswith(f'"{number}",'))


def test_each_reading_is_the_median_over_launches_of_the_sum_of_their_kernels() -> None:
    found = parse_ncu(TEXT, SECTIONS)
    assert [(each.run, each.call) for each in found] == [(run, name) for run in (0, 1) for name in NAMES]
    first, second = found[:5], found[5:]
    # the product is two kernels a launch; the middle one of three launches is 171,936 and 2,688 ns
    assert [each.ns for each in first] == [2240, 4256, 124512, 174624, 55104]
    assert [each.ns - before.ns for each, before in zip(second, first, strict=True)] == [64, 64, 64, 128, 64]
    assert {each.samples for each in found} == {3}


def test_what_ncu_wrote_on_an_h200_is_read_whole() -> None:
    recorded = (Path(__file__).parents[2] / "data" / "audit" / "ncu_h200.csv").read_text(encoding="utf-8")
    found = parse_ncu(recorded, Sections(NAMES, runs=5))
    assert len(found) == 25
    readings = {name: [each.ns for each in found if each.call == name] for name in NAMES}
    assert readings["add of 256 MiB"] == [124512, 124800, 124544, 124416, 124032]
    assert readings["matmul 4096³ bfloat16"] == [174144, 174272, 173760, 174432, 174080]
    assert readings["softmax 4096² bfloat16"] == [55104, 55008, 55136, 55040, 55072]


@pytest.mark.parametrize(
    ("unit", "factor"), [("nsecond", 1), ("us", 1e3), ("usecond", 1e3), ("msecond", 1e6)]
)
def test_a_time_in_another_unit_is_the_same_time(unit: str, factor: float) -> None:
    found = parse_ncu(changed('"ns"', f'"{unit}"'), SECTIONS)
    assert found[0].ns == 2240 * factor


def test_other_metrics_in_the_table_are_left_alone() -> None:
    row = next(line for line in TEXT.splitlines() if line.startswith('"1",'))
    other = row.replace("gpu__time_duration.sum", "sm__cycles_active.avg").replace('"ns"', '"cycle"')
    assert parse_ncu(f"{TEXT}{other}\n", SECTIONS) == parse_ncu(TEXT, SECTIONS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (without_row(0), "before the first marker; it belongs to no call"),
        (without_row(1), "2 kernels for 3 launches of add of 256 floats"),
        (without_row(4), "shows 9 marked runs rather than 10"),
        (changed('"ns"', '"cycle"'), "in 'cycle'; known are ns, "),
        (changed('"124,512"', '"n/a"'), "as 'n/a', which is no number"),
        (changed('"Metric Unit"', '"Unit"'), "no column 'Metric Unit'"),
        ("==PROF== Connected to process 1\n", "no table .and no error"),
        ("==ERROR== no counters\n==ERROR== no counters\n", r"no table .no counters\)"),
        ("", "no table"),
    ],
)
def test_a_table_that_is_not_what_was_launched_gives_no_reading(text: str, message: str) -> None:
    with pytest.raises(TimingError, match=message):
        parse_ncu(text, SECTIONS)


def test_what_ncu_calls_an_error_is_told_once() -> None:
    text = "==PROF== x\n==ERROR== ERR_NVGPUCTRPERM\n==WARNING== y\n==ERROR== ERR_NVGPUCTRPERM\n==ERROR== z\n"
    assert errors_in(text) == "ERR_NVGPUCTRPERM; z"
    assert errors_in(TEXT) == ""


def test_ncu_leaves_the_clocks_alone_and_flushes_all_caches(tmp_path: Path) -> None:
    command = ncu_command("/opt/ncu", ["python", "-c", "pass"], log=tmp_path / "x.csv")
    assert command[0] == "/opt/ncu"
    assert command[-3:] == ["python", "-c", "pass"]
    options = dict(zip(command[2:-3:2], command[3:-3:2], strict=True))
    assert (options["--clock-control"], options["--cache-control"]) == ("none", "all")
    assert options["--metrics"] == "gpu__time_duration.sum"
    assert options["--log-file"] == str(tmp_path / "x.csv")


def test_without_ncu_there_is_a_reason_with_a_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = find_ncu()
    assert not found
    assert "install Nsight Compute" in found.detail
