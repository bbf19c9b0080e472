"""What a comparison of two files finds: right answers, wrong ones, and tricks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from kernelmark.errors import CrashedError, TimingError, UsageError, VerificationError
from kernelmark.kernelfile.document import write_documents
from kernelmark.kernelfile.worker import timer_for
from kernelmark.records import Check, read_run
from kernelmark.report.notes import note_text
from kernelmark.report.remarks import remarks


def solution(body: str, *, setup: str = "", before: str = "", outputs: str = '["out"]') -> str:
    """Write a solution whose ``run_kernel`` has ``body``."""
    return f"""
import torch
{before}

def setup(N=64, **kwargs):
    x, out = torch.randn(N), torch.empty(N)
    inputs = {{"x": x, "out": out}}
    {setup or "pass"}
    return {{"inputs": inputs, "outputs": {outputs}}}

def run_kernel(x, out):
    {body}
"""


def test_a_right_solution_is_verified_and_measured_with_as_many_samples_as_asked(run, tmp_path: Path) -> None:
    found = run(num_trials=20)
    assert found.outcome == "measured"
    ours, eager = found.rows
    assert (ours.check, eager.check) == (Check.VERIFIED, Check.VERIFIED)
    assert ours.timing is not None
    assert ours.timing.device_busy.samples == 20
    assert eager.ratio is not None
    assert eager.ratio.blocks == 10
    assert read_run(found.folder).rows == found.rows
    assert {"report.md", "report.json", "report.csv"} <= {each.name for each in found.folder.iterdir()}


def test_the_warm_up_has_exactly_the_rounds_asked_for_and_one_for_each_discarded_reading(run) -> None:
    ours = run(num_warmup=4, discard_first=2).rows[0]
    assert ours.timing is not None
    assert ours.timing.warmup_count == 6


def test_a_second_run_into_the_same_folder_keeps_the_first(run, tmp_path: Path) -> None:
    first, second = run(), run()
    assert first.folder != second.folder
    assert read_run(first.folder).end is not None
    told = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert tmp_path / "out" / told["run"] == second.folder


def test_the_same_seed_gives_the_same_inputs(run, tmp_path: Path) -> None:
    seen_at = f"__import__('pathlib').Path({str(tmp_path / 'seen')!r})"
    body = f"torch.mul(x, 2, out=out); {seen_at}.write_text(str(float(x.sum())))"
    seen = []
    for seed in (7, 7, 8):
        run(solution(body), seed=seed, baselines="none")
        seen.append((tmp_path / "seen").read_text())
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(solution("torch.mul(x, 2.1, out=out)"), id="a wrong factor"),
        pytest.param(solution("pass"), id="nothing at all"),
        pytest.param(solution("out[:-1] = x[:-1] * 2"), id="all but one element"),
        pytest.param(
            solution("pass", setup="torch.mul(x, 2, out=out)"), id="the answer is written in setup"
        ),
        pytest.param(
            solution("out.copy_(kept[0])", before="kept = []", setup="kept.append(x * 2)"),
            id="the answer is kept from setup",
        ),
        pytest.param(
            solution(
                "calls.append(1)\n    if len(calls) == 1:\n        kept.append(x * 2)\n    out.copy_(kept[0])",
                before="calls, kept = [], []",
            ),
            id="the answer to the prewarm's data",
        ),
        *[
            pytest.param(
                solution(f"calls.append(1)\n    if len(calls) == {n}: torch.mul(x, 2, out=out)", before="calls = []"),
                id=f"right in call {n} only",
            )
            for n in range(1, 6)
        ],
        pytest.param(
            solution(
                "calls.append(1)\n    if len(calls) < 8: torch.mul(x, 2, out=out)", before="calls = []"
            ),
            id="right in the first seven calls",
        ),
        pytest.param(
            solution("torch.mul(x, 2, out=out); x.zero_()"), id="the right answer, and the input is gone"
        ),
        pytest.param(
            solution("out[:, 0] = x * 2", setup='inputs["out"] = torch.empty(N, 1)'),
            id="a shape that broadcasts",
        ),
        pytest.param(
            solution("out[0] = x * 2", setup='inputs["out"] = torch.empty(1, N)'),
            id="a leading dimension of one",
        ),
        pytest.param(
            solution("out.copy_(x * 2)", setup='inputs["out"] = torch.empty(N, dtype=torch.int64)'),
            id="integers for floats",
        ),
        pytest.param(
            solution("out.copy_(x * 2)", setup='inputs["out"] = torch.empty(N, dtype=torch.float64)'),
            id="a wider dtype",
        ),
    ],
)  # fmt: skip
def test_a_wrong_solution_fails_without_a_time_and_the_report_says_so(
    run, tmp_path: Path, wrong: str
) -> None:
    with pytest.raises(VerificationError) as raised:
        run(wrong)
    rows = raised.value.comparison.rows
    assert rows[0].check is Check.FAILED
    assert all(row.timing is None and row.ratio is None for row in rows)
    told = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert told["outcome"] == "wrong"
    assert told["speedups"] == []
    page = (tmp_path / "out" / "benchmark.md").read_text()
    assert "\nFAIL: solution" in page
    assert "mean (ms)" not in page


def test_a_failed_check_names_the_output_the_worst_element_and_the_tolerance(run) -> None:
    with pytest.raises(VerificationError, match=r"output\['out'\].*64 of 64") as raised:
        run(solution("torch.mul(x, 3, out=out)"))
    for told in ("worst at [", "expected", "got", "tolerance: atol=0.0001 rtol=0.001"):
        assert told in str(raised.value)


@pytest.mark.parametrize(
    ("body", "told"),
    [("raise ValueError('no luck')", "no luck"), ("raise SystemExit(3)", "sys.exit"), ("1 / 0", "Zero")],
)
def test_a_solution_that_raises_has_crashed_and_the_report_is_written(run, tmp_path, body, told) -> None:
    with pytest.raises(CrashedError, match=told) as raised:
        run(solution(body))
    assert raised.value.comparison.row("solution").check is Check.FAILED
    assert json.loads((tmp_path / "out" / "benchmark.json").read_text())["outcome"] == "crashed"


def test_a_solution_that_raises_only_while_it_is_timed_has_crashed(run) -> None:
    late = solution(
        "calls.append(1)\n    if len(calls) > 7: raise ValueError('late')\n    torch.mul(x, 2, out=out)",
        before="calls = []",
    )
    with pytest.raises(CrashedError, match="late") as raised:
        run(late)
    assert raised.value.comparison.row("solution").check is Check.FAILED


def test_a_solution_whose_import_fails_has_crashed(run) -> None:
    with pytest.raises(CrashedError, match="no_such_package"):
        run(solution("pass", before="import no_such_package"))


def test_a_solution_that_replaces_the_clock_gets_no_time(run, monkeypatch) -> None:
    import time

    monkeypatch.setattr(time, "perf_counter_ns", time.perf_counter_ns)
    trick = "import time\nown = time.perf_counter_ns\ntime.perf_counter_ns = lambda: own() // 2"
    with pytest.raises(Exception, match="replaced"):
        run(solution("torch.mul(x, 2, out=out)", before=trick))


@pytest.mark.parametrize(
    ("outputs", "told"),
    [("[]", "names no output"), ('["missing"]', "'missing'"), ('["out", "out"]', "twice")],
)
def test_outputs_that_cannot_be_compared_are_an_error_of_use(run, outputs: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        run(solution("torch.mul(x, 2, out=out)", outputs=outputs))


def test_an_output_in_the_memory_of_an_input_is_refused(run) -> None:
    with pytest.raises(UsageError, match="same memory"):
        run(solution("x.mul_(2)", setup='inputs["out"] = x'))


def test_cuda_devices_are_timed_with_events_unless_another_instrument_is_asked_for(asked) -> None:
    assert timer_for(asked(), "cuda:1") == "device_events"
    assert timer_for(asked(timing_method="cupti"), "cuda:1") == "cupti"
    assert timer_for(asked(), "cpu") is None


# --- the reference --------------------------------------------------------------------------------------


@pytest.mark.spec("K2")
@pytest.mark.parametrize(
    "body",
    [
        "return x * 2",
        "return (x * 2,)",
        "return [x * 2]",
        'return {"out": x * 2}',
        "torch.mul(x, 2, out=out)",
    ],
)
def test_the_reference_may_answer_in_every_documented_form(run, body: str) -> None:
    assert (
        run(reference=f"import torch\ndef reference(x, out, **kwargs):\n    {body}\n").outcome == "measured"
    )


@pytest.mark.spec("K2")
@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("return x, x", "returned 2 outputs, and the solution has 1"),
        ('return {"y": x}', "differ: out, y"),
        ("return 3", "gave int for out"),
        ("out[:3] = x[:3]", "unwritten"),
        ("raise ValueError('odd')", "odd"),
    ],
)
def test_a_reference_that_does_not_fit_is_an_error_of_use(run, body: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        run(reference=f"def reference(x, out, **kwargs):\n    {body}\n")


@pytest.mark.spec("K2")
@pytest.mark.spec("K5")
def test_values_reach_the_open_arguments_of_setup_and_of_the_reference(run) -> None:
    text = solution("torch.mul(x, 2, out=out)").replace("def setup(N=64, **kwargs)", "def made(N)")
    text += "\ndef setup(**kwargs):\n    return made(**kwargs)\n"
    reference = "def reference(**kwargs):\n    return kwargs['x'] * (kwargs['N'] / 4)\n"
    assert run(text, reference, values={"N": "8"}).rows[0].outputs[0].shape == (8,)


@pytest.mark.parametrize(
    ("values", "told"),
    [({"alpha": "2"}, "neither an option nor a parameter"), ({"x": "2"}, r"setup\(\) gives x itself")],
)
def test_a_value_that_would_be_ignored_is_refused(run, values: dict[str, str], told: str) -> None:
    text = solution("torch.mul(x, 2, out=out)").replace(
        "def run_kernel(x, out)", "def run_kernel(x, out, alpha=1)"
    )
    with pytest.raises(UsageError, match=told):
        run(text, values=values)


def test_an_output_whose_old_value_matters_is_declared_and_restored_before_each_call(run) -> None:
    reference = 'inout = ("out",)\ndef reference(x, out, **kwargs):\n    out += x\n'
    found = run(solution("out.add_(x)", setup="out.fill_(1)"), reference)
    assert [row.check for row in found.rows] == [Check.VERIFIED] * 2


def test_a_right_answer_for_the_wrong_old_value_fails(run) -> None:
    reference = 'inout = ("out",)\ndef reference(x, out, **kwargs):\n    out += x\n'
    with pytest.raises(VerificationError):
        run(solution("out.copy_(x)", setup="out.fill_(1)"), reference)


def test_tolerances_come_from_the_command_line_then_the_reference_then_the_defaults(run) -> None:
    text = "atol = 0.5\nrtol = 0.5\ndef reference(x, out, **kwargs):\n    return x * 2\n"
    near = solution("torch.mul(x, 2.1, out=out)")
    found = run(near, text)
    assert found.told["header"]["tolerances"] == "atol=0.5 rtol=0.5 (reference file)"
    with pytest.raises(VerificationError, match=r"atol=1e-06 rtol=0.01"):
        run(near, text, atol=1e-6, rtol=0.01)


ROW_SUM = """
import torch

def setup(N, **kwargs):
    return {"inputs": {"x": torch.randn(8, N), "out": torch.empty(8)}, "outputs": ["out"]}

def run_kernel(x, out):
    # as far off as sums in another order can be
    out.copy_(x.double().sum(1) + 2.5e-4)
"""
SUMMED = "def reference(x, out, **kwargs):\n    return x.double().sum(1).float()\n"


@pytest.mark.parametrize(
    "declared", ['reduction = "N"', "reduction = 16384", "def reduction(N):\n    return N"]
)
def test_the_length_of_sums_can_be_declared_in_the_reference_file(run, declared: str) -> None:
    asked = {"values": {"N": "16384"}}
    with pytest.raises(VerificationError, match='in the reference file, as in reduction = "N"'):
        run(ROW_SUM, f"atol, rtol = 1e-4, 0\n{SUMMED}", **asked)
    found = run(ROW_SUM, f"{declared}\n{SUMMED}", **asked)
    assert found.rows[0].check is Check.VERIFIED
    assert found.told["header"]["tolerances"] == "sums of 16384 terms (reduction of ref.py)"


@pytest.mark.parametrize("declared", ["reduction = 'K'", "reduction = 0", "reduction = 'N'\natol = 1e-3"])
def test_a_length_that_is_none_is_an_error_of_use(run, declared: str) -> None:
    with pytest.raises(UsageError, match="reduction"):
        run(ROW_SUM, f"{declared}\n{SUMMED}", values={"N": "64"})


def test_a_wrong_factor_is_not_taken_for_rounding(run) -> None:
    with pytest.raises(VerificationError) as raised:
        run(solution("torch.mul(x, 3, out=out)"))
    assert "reduction" not in str(raised.value)


def test_what_makes_a_run_suspicious_is_in_both_documents(run, tmp_path: Path) -> None:
    found = run()
    told = [f"{each.subject}: {each.text}" for each in remarks(read_run(found.folder))]
    assert found.told["remarks"] == told
    write_documents(
        tmp_path, {**found.told, "remarks": ["other work: the load average reached 9 on 2 cores"]}
    )
    page = (tmp_path / "benchmark.md").read_text()
    assert page.index("- other work: the load average reached 9 on 2 cores") < page.index("| solution |")


def test_what_proves_nothing_is_not_called_passed(run, tmp_path: Path) -> None:
    found = run(
        solution("torch.mul(x, 2, out=out)"), "def reference(x, out, **kwargs):\n    return x * 2\n", atol=100
    )
    assert found.outcome == "unverified"
    page = (tmp_path / "out" / "benchmark.md").read_text()
    assert "NOT VERIFIED" in page
    assert "PASS" not in page


def test_values_that_setup_draws_the_same_for_every_seed_are_permuted(run) -> None:
    fixed = solution(
        "out.copy_(kept[0])", before="kept = []", setup="x.copy_(torch.arange(N)); kept.append(x * 2)"
    )
    with pytest.raises(VerificationError) as raised:
        run(fixed)
    assert any("permuted" in note_text(note) for note in raised.value.comparison.rows[0].notes)


# --- baselines ------------------------------------------------------------------------------------------


@pytest.mark.spec("K3")
def test_flashinfer_reaches_only_its_baseline_and_is_unavailable_where_it_cannot_be_imported(run) -> None:
    reference = """
def reference(x, out, **kwargs):
    if kwargs.get("baseline") == "flashinfer":
        import flashinfer
    return x * 2
"""
    eager, flashinfer = run(reference=reference, baselines="eager,flashinfer").rows[1:]
    assert eager.check is Check.VERIFIED
    assert flashinfer.check is Check.UNAVAILABLE
    assert "flashinfer" in note_text(flashinfer.note)


def test_a_flashinfer_baseline_that_does_not_use_flashinfer_is_not_called_so(run) -> None:
    (row,) = run(baselines="flashinfer").rows[1:]
    assert row.check is Check.UNAVAILABLE
    assert "did not import flashinfer" in note_text(row.note)


@pytest.mark.slow
@pytest.mark.parametrize("recompiled", [False, True])
def test_what_torch_compiles_after_the_first_calls_is_a_note_on_its_row(run, recompiled: bool) -> None:
    # a text that grows is another constant in each call, and compiled for anew
    grow = "    texts[0] += 'a'\n" if recompiled else ""
    reference = (
        f"texts = ['']\ndef reference(x, out, **kwargs):\n{grow}    return x * (2 + 0 * len(texts[0]))\n"
    )
    (row,) = run(reference=reference, baselines="torch-compile").rows[1:]
    assert row.check is Check.VERIFIED
    assert row.timing is not None
    told = [note for note in row.notes if "so its times hold compilations" in note_text(note)]
    assert bool(told) is recompiled
    if recompiled:
        # it gives up after eight, two of which came before
        assert int(note_text(told[0]).split()[2]) >= 1


@pytest.mark.spec("K4")
def test_a_wrong_baseline_ends_the_comparison(run) -> None:
    reference = """
calls = []
def reference(x, out, **kwargs):
    calls.append(1)
    return x * (2 if len(calls) < 5 else 3)
"""
    with pytest.raises(VerificationError, match="pytorch-eager"):
        run(reference=reference)


@pytest.mark.parametrize("call", [6, 9])
def test_a_baseline_that_raises_is_not_the_solution_s_crash(run, call: int) -> None:
    # in its check, or while it is timed
    reference = f"""
calls = []
def reference(x, out, **kwargs):
    calls.append(1)
    if len(calls) >= {call}:
        raise ValueError("tired")
    return x * 2
"""
    with pytest.raises(VerificationError, match="tired") as raised:
        run(reference=reference)
    assert not isinstance(raised.value, CrashedError)
    assert raised.value.comparison.row("solution").check is Check.VERIFIED


def test_samples_that_add_up_to_more_time_than_there_was_are_reported_without_times(
    run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from kernelmark.kernelfile import run as running

    def forge(job, worker):
        seed, ended = honest(job, worker)
        return seed, dataclasses.replace(ended, wall_s=1e-9)

    honest = running._work
    monkeypatch.setattr(running, "_work", forge)
    with pytest.raises(TimingError, match="tampered"):
        run()
    told = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert told["outcome"] == "untimed"
    assert "median_ms" not in told["variants"]["solution"]


def test_the_interpreter_needs_a_process_of_its_own(run) -> None:
    with pytest.raises(UsageError, match="no-isolation"):
        run("import triton\ndef setup(): ...\ndef run_kernel(): ...\n", implementation="triton")


def test_without_baselines_the_solution_stands_alone(run) -> None:
    assert [row.implementation for row in run(baselines="off").rows] == ["solution"]
