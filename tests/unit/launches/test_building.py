"""References are built once, before anything is timed, and one that fails is a result."""

from __future__ import annotations

import pytest

from kernelmark.launches.building import Built, build_references, report_baseline_error, share_errors
from kernelmark.launches.ranks import Ranks


def launch() -> None: ...


def fails():
    raise RuntimeError("no such library")


@pytest.mark.spec("X8")
def test_each_builder_runs_once_and_the_others_go_on_after_one_that_raises() -> None:
    ran: list[str] = []

    def build(name: str):
        return lambda: ran.append(name) or launch

    built = build_references({"a": build("a"), "bad": fails, "b": build("b")})
    assert ran == ["a", "b"]
    assert built == Built({"a": launch, "b": launch}, {"bad": "RuntimeError: no such library"})


@pytest.mark.spec("X8")
def test_a_builder_that_returns_no_launch_is_an_error_of_that_reference() -> None:
    built = build_references({"a": lambda: 3})
    assert built.errors == {
        "a": "UsageError: the builder returned 3; it must return the launch, a callable without arguments"
    }


@pytest.mark.spec("X8")
def test_an_interrupt_while_building_is_not_a_baselines_error() -> None:
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_references({"a": interrupted})


@pytest.mark.spec("X8")
def test_stderr_gets_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    report_baseline_error("fa3", "ImportError: no module")
    assert capsys.readouterr() == ("", "BASELINE_ERROR: fa3: ImportError: no module\n")


@pytest.mark.spec("X15")
def test_what_one_rank_could_not_build_is_dropped_on_all_with_the_rank_named(on_ranks) -> None:
    def body(context):
        built = build_references({"a": lambda: launch, "bad": fails if context.rank else lambda: launch})
        return share_errors(built, Ranks(context))

    assert (
        on_ranks(3, body)
        == [
            Built(
                {"a": launch},
                {"bad": "rank 1: RuntimeError: no such library; rank 2: RuntimeError: no such library"},
            )
        ]
        * 3
    )
