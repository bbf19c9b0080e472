"""Which ``--NAME=VALUE`` two files understand, told without running them."""

from __future__ import annotations

import pytest

from kernelmark.errors import UsageError
from kernelmark.kernelfile.names import names_in_python, require_known

SETUP = """
raise RuntimeError("this file must not be run")
def setup(M, *, d=1, **kwargs):
    return kwargs["N"] + kwargs.get("eps", 1)
def other(hidden): ...
"""


def test_names_are_those_of_the_functions_and_those_that_a_file_spells_out(write) -> None:
    accepted = names_in_python(write("s.py", SETUP), ("setup",), required=("setup",))
    assert all(name in accepted for name in ("M", "d", "N", "eps"))
    assert "hidden" not in accepted
    assert "K" not in accepted


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
    names_in_python(path, (), required=("setup", "run_kernel"))


def test_a_name_that_nobody_takes_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean --seq_len"):
        require_known({"seqlen": "1"}, {"solve()": frozenset({"seq_len", "M"})})
    with pytest.raises(UsageError, match="there are M, seq_len"):
        require_known({"Q": "1"}, {"solve()": frozenset({"seq_len", "M"})})
