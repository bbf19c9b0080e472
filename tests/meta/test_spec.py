"""Which lines of the specification have a test, and the report that says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import spec_report


@pytest.mark.parametrize("group", ["T", "X", "K", "L"])
def test_every_line_of_a_finished_way_in_has_a_test(group: str) -> None:
    missing = spec_report.missing_lines(spec_report.load_groups(), spec_report.find_mentions(), [group])
    assert not missing, f"no test names {', '.join(missing)}"


def test_no_test_names_a_line_that_does_not_exist() -> None:
    unknown = spec_report.unknown_mentions(spec_report.load_groups(), spec_report.find_mentions())
    assert not [f"{mention.path}:{mention.row}: {mention.line}" for mention in unknown]


def test_all_four_ways_in_are_listed() -> None:
    assert {group.letter: len(group.lines) for group in spec_report.load_groups()} == {
        "T": 39,
        "X": 16,
        "K": 9,
        "L": 13,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "@pytest.mark.spec('T1', 'X2')\n"
        "def test_one(): ...\n"
        "@pytest.mark.gpu\n"
        "class TestTwo:\n"
        "    @pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.spec('K3'))])\n"
        "    def test_it(self, x): ...\n"
    )
    return tmp_path


def test_markers_are_found_on_functions_in_classes_and_on_parameters(folder: Path) -> None:
    found = spec_report.find_mentions(folder)
    assert [(mention.line, mention.test, mention.gpu) for mention in found] == [
        ("T1", "test_one", False),
        ("X2", "test_one", False),
        ("K3", "TestTwo::test_it", True),
    ]


def test_a_marker_on_the_module_counts_for_the_module(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text(
        "import pytest\npytestmark = [pytest.mark.spec('L1'), pytest.mark.gpu]\n"
    )
    (mention,) = spec_report.find_mentions(tmp_path)
    assert (mention.line, mention.test, mention.gpu) == ("L1", "(module)", True)


def test_a_marker_that_is_not_plain_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_all.py").write_text("import pytest\nline = 'T1'\npytestmark = pytest.mark.spec(line)\n")
    with pytest.raises(TypeError, match=r"test_all\.py:3: spec\(\) takes line ids as text"):
        spec_report.find_mentions(tmp_path)


def test_the_report_exits_with_1_if_a_required_line_has_no_test(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spec_report.main(["--tests", str(folder), "--require", "K"]) == 1
    printed = capsys.readouterr()
    assert "K  kernel files: 1 of 9 lines have a test, 1 of them only with a GPU" in printed.out
    assert "K1: required, and no test names it" in printed.err
    assert "K3:" not in printed.err


def test_the_report_exits_with_0_if_nothing_is_required(folder: Path) -> None:
    assert spec_report.main(["--tests", str(folder)]) == 0


def test_the_report_exits_with_1_if_a_test_names_an_unknown_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_all.py").write_text("import pytest\npytestmark = pytest.mark.spec('T99')\n")
    assert spec_report.main(["--tests", str(tmp_path)]) == 1
    assert "T99 is no line of lines.yaml" in capsys.readouterr().err
