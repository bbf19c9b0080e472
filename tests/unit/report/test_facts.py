"""How a run was made, in labelled sentences."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmark.records import Cache, DeviceRecord, StoredRun
from kernelmark.report.facts import device_text, run_facts


def test_everything_a_reader_must_know_about_the_run_is_there(stored: StoredRun):
    facts = dict(run_facts(stored))
    assert facts["Device"].startswith("NVIDIA H200 (cuda:0, 132 cores, capability 9.0, driver 580.95")
    assert facts["Software"] == "kernelmark 0.1.0, Python 3.11.9, torch 2.11.0+cu130, triton 3.6.0"
    assert facts["Revision"] == "52dbc0821b7e"
    assert facts["Timer"] == "cupti"
    assert facts["Caches"].startswith("cold: ")
    assert facts["Cache probe"] == (
        "reading 4.00 MiB took 1.950 µs warm and 3.040 µs after the flush of 120 MiB: 1.56 times as long"
    )
    assert facts["Protocol"] == (
        "Every implementation was timed in 3 blocks of A B C … C B A, each timed call after its reset"
        " and a flush of the caches: 100 ms of samples (10 to 200 samples) after 25.0 ms of warm-up."
    )
    assert facts["Time"] == "2026-03-01T12:00:00+00:00 to 2026-03-01T12:00:09+00:00"


@pytest.mark.parametrize(
    ("revision", "dirty", "text"),
    [
        ("0123456789abcdef", True, "0123456789ab with uncommitted changes"),
        ("0123456789abcdef", False, "0123456789ab"),
        ("0123456789abcdef", None, "0123456789ab (state unknown)"),
        (None, None, "not under git"),
    ],
)
def test_the_revision_says_whether_the_tree_was_clean(
    make_run: Callable[..., StoredRun], stored: StoredRun, revision: str | None, dirty: bool | None, text: str
):
    changed = stored.header.environment.model_copy(update={"git_revision": revision, "git_dirty": dirty})
    assert dict(run_facts(make_run(environment=changed)))["Revision"] == text


@pytest.mark.spec("T27")
def test_a_run_that_only_checked_says_so_and_names_no_timer(
    make_run: Callable[..., StoredRun], stored: StoredRun
):
    protocol = stored.header.protocol.model_copy(update={"verify_only": True})
    facts = dict(run_facts(make_run(protocol=protocol, probe=None)))
    assert facts["Protocol"] == "Checks only; nothing was timed."
    assert not {"Timer", "Caches", "Cache probe"} & set(facts)


def test_warm_caches_and_a_single_block_are_said(make_run: Callable[..., StoredRun], stored: StoredRun):
    protocol = stored.header.protocol.model_copy(update={"cache": Cache.WARM, "blocks": 1})
    facts = dict(run_facts(make_run(protocol=protocol)))
    assert facts["Caches"].startswith("warm: ")
    assert facts["Cache probe"] == (
        "reading 4.00 MiB took 3.040 µs after a flush of 120 MiB, and 1.950 µs when it was read again:"
        " 1.56 times as fast"
    )
    assert "in one block of" in facts["Protocol"]
    assert "flush" not in facts["Protocol"]


def test_a_timed_run_without_a_probe_says_what_that_means(
    make_run: Callable[..., StoredRun], stored: StoredRun
):
    assert dict(run_facts(make_run(probe=None)))["Cache probe"] == (
        "none: nothing in this run shows that cold is cold"
    )
    warm = stored.header.protocol.model_copy(update={"cache": Cache.WARM})
    assert dict(run_facts(make_run(probe=None, protocol=warm)))["Cache probe"].endswith("that warm is warm")


def test_a_run_cut_short_has_a_start_and_no_end(make_run: Callable[..., StoredRun]):
    assert dict(run_facts(make_run(end=None)))["Time"] == "2026-03-01T12:00:00+00:00"


def test_a_device_says_only_what_it_knows():
    assert device_text(DeviceRecord(kind="fake", name="fake device")) == "fake device (fake)"
    cpu = DeviceRecord(
        kind="cpu", name="A CPU", cores=2, threads=1, cache_bytes={"L3": 2**25}, details={"isa": "avx2"}
    )
    assert device_text(cpu) == "A CPU (cpu, 2 cores, 1 thread, L3 32.0 MiB, isa avx2)"


def test_a_command_with_blanks_can_be_pasted_into_a_shell(make_run: Callable[..., StoredRun]):
    assert dict(run_facts(make_run(command=("a b", "-k", "x and y"))))["Command"] == "'a b' -k 'x and y'"
