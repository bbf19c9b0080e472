"""Which ``--NAME=VALUE`` two files understand, told without running them."""

from __future__ import annotations

import pytest

from kernelmark.errors import UsageError
from kernelmark.kernelfile.names import Accepted, names_in_python, require_known

SETUP = """
raise RuntimeError("this file must not be run")
def setup(M, *, d=1, **kwargs):
    if "flag" in kwargs:
        build(M, **kwargs)
    return kwargs["N"] + kwargs.get("eps", 1)
def build(M, K): ...
def other(hidden): ...
"""


def test_names_are_parameters_and_what_a_function_reads_from_its_open_arguments(write) -> None:
    accepted = names_in_python(write("s.py", SETUP), ("setup",), required=("setup",))
    assert accepted.names == {"M", "d", "N", "eps", "flag", "K"}
    assert "hidden" not in accepted


@pytest.mark.parametrize(
    ("body", "anything"),
    [
        ("return kwargs", True), ("return build(**kwargs)", True), ("return len(kwargs)", True),
        ("return [kwargs[each] for each in 'MN']", True), ("return kwargs['M']", False), ("return 1", False),
        ("return setup(**kwargs)", False),
    ],
)  # fmt: skip
def test_open_arguments_used_in_a_way_that_shows_no_names_take_every_name(write, body: str, anything) -> None:
    """Those that are never used take none, so that a typing error is still found."""
    text = f"from elsewhere import build\ndef setup(**kwargs):\n    {body}\n"
    assert ("Z" in names_in_python(write("s.py", text), ("setup",), required=())) is anything


def test_without_open_arguments_only_the_named_ones_count(write) -> None:
    path = write("s.py", 'def setup(M):\n    return {"N": M}\n')
    assert "N" not in names_in_python(path, ("setup",), required=())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def setup(): ...", "no run_kernel"),
        ("def (", "no Python"),
        ("x = 1", "no setup.* and no run_kernel"),
    ],
)
def test_a_file_that_lacks_something_is_refused(write, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        names_in_python(write("s.py", text), (), required=("setup", "run_kernel"))


def test_an_imported_or_assigned_function_is_there(write) -> None:
    path = write("s.py", "from elsewhere import setup\nrun_kernel = print\n")
    accepted = names_in_python(path, ("setup",), required=("setup", "run_kernel"))
    assert accepted.anything  # what an imported one takes, its own file says


def test_a_name_that_nobody_takes_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean '--seq_len'"):
        require_known({"seqlen": "1"}, {"solve()": Accepted(frozenset({"seq_len", "M"}))})
    with pytest.raises(UsageError, match="they take: --M, --seq_len"):
        require_known({"Q": "1"}, {"solve()": Accepted(frozenset({"seq_len", "M"}))})


def test_a_misspelt_option_is_told_from_a_parameter() -> None:
    with pytest.raises(UsageError, match=r"--cahce=warm: neither an option .*; did you mean '--cache'"):
        require_known({"cahce": "warm"}, {"solve()": Accepted(frozenset({"M"}))})
