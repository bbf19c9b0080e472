"""The Markdown report, read back by a Markdown parser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kernelmark.records import Check, KernelShare, Role, Row, RunEnd, StoredRun
from kernelmark.report.formats import run_page
from kernelmark.report.pages import code, escape, escape_line, page_markdown
from kernelmark.report.plain import one_line, visible

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
Table = list[list[str]]


def markdown_report(run: StoredRun) -> str:
    return page_markdown(run_page(run))


def text_of(token: Token) -> str:
    """Give what a reader sees; a comment that keeps a name from being a mention is not seen."""
    children = token.children or []
    assert not {child.type for child in children} & {"image", "em_open", "s_open"}
    assert {child.attrs["href"] for child in children if child.type == "link_open"} <= {"#remarks"}
    return "".join(
        child.content for child in children if child.type in ("text", "code_inline", "text_special")
    )


def inlines(document: str) -> Iterator[tuple[str, str]]:
    """Yield the kind of the block and the text of every piece of running text."""
    tokens = PARSER.parse(document)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "inline" and before is not None:
            yield before.type, text_of(token)


def tables(document: str) -> list[Table]:
    found: list[Table] = []
    for token, following in zip(tokens := PARSER.parse(document), tokens[1:], strict=False):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type in ("th_open", "td_open"):
            found[-1][-1].append(text_of(following) if following.type == "inline" else "")
    return found


def row_tables(document: str) -> list[list[dict[str, str]]]:
    return [
        [dict(zip(table[0], line, strict=True)) for line in table[1:]]
        for table in tables(document)
        if "check" in table[0] and "implementation" in table[0]
    ]


def headings(document: str) -> list[str]:
    return [text for kind, text in inlines(document) if kind == "heading_open"]


def items(document: str) -> list[str]:
    return [text for kind, text in inlines(document) if kind == "paragraph_open"]


# --- escaping -----------------------------------------------------------------------------------------

HOSTILE = [
    "a|b",
    r"a\|b",
    "a`b",
    "``",
    "a\nb",
    "| --- |",
    "*bold* _it_ __x__ ~~gone~~",
    "[text](http://x)",
    "![pic](http://x)",
    "<script>alert(1)</script>",
    "<!-- hidden",
    "&lt; &#65;",
    r"back\slash\\",
    "\\",
    "# heading",
    "1. item",
    "12) item",
    "- item",
    "+ item",
    "> quote",
    "[x]: http://x",
    "[ ] task",
    "===",
    "---",
    "snake_case_name _x",
    "$x$ $$y$$",
    "~~~",
    "µ × 你好 🙂",
    "http://x/*",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("write", [escape, code])
def test_text_in_a_cell_is_shown_as_it_is(text: str, write: Callable[[str], str]):
    document = f"| name | next |\n| --- | --- |\n| {write(text)} | x |\n"
    assert tables(document) == [[["name", "next"], [visible(text), "x"]]]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_at_the_start_of_a_list_item_is_shown_as_it_is(text: str):
    document = f"1. {escape_line(text)}\n2. next\n"
    assert items(document) == [visible(text), "next"]


@given(text=st.text() | st.text("`|\\*_[](){}<>!/#&;:$~@^\"'-+=.,01ab \n", max_size=12))
def test_any_text_survives_in_a_cell_and_in_a_list(text: str):
    shown = visible(text)
    ((_, (in_code, plain)),) = tables(f"| a | b |\n| --- | --- |\n| {code(text)} | {escape(text)} |\n")
    assert (in_code.strip(), plain) == (shown.strip(), shown.strip())
    line = one_line(text)
    assert items(f"1. {escape_line(line)}\n2. next\n") == ([line.strip()] if line.strip() else []) + ["next"]


def test_ordinary_names_stay_readable_in_the_source():
    assert code("bmm/attention-scores_float16") == "`bmm/attention-scores_float16`"
    assert escape("n_kernels of [3, 17, 201] < 4 & more") == "n_kernels of [3, 17, 201] < 4 & more"


def test_nobody_is_notified_by_a_name():
    assert escape("@someone and a@b.org") == "@<!-- -->someone and a@b.org"
    assert code("@someone") == "`@someone`"


# --- the document -------------------------------------------------------------------------------------


def test_the_document_has_its_parts_in_order(stored: StoredRun):
    assert headings(markdown_report(stored)) == [
        "Kernel benchmark on NVIDIA H200",
        "BmmFwdOp",
        "bmm/attention-scores/float16",
        "bmm/attention-scores/bfloat16",
        "SoftmaxFwdOp",
        "softmax/logits/float32",
        "Checks",
        "Remarks",
    ]


def test_the_opening_tells_the_outcome_and_how_the_run_was_made(stored: StoredRun):
    document = markdown_report(stored)
    counts = "3 verified, 1 partial, 2 unverified, 1 noncomparable, 1 failed, 1 unavailable"
    assert f"**9 rows** of 3 cases: {counts}." in document
    assert "**2 things to look at before believing the numbers:** drift, repeated readings" in document
    facts = {line[0]: line[1] for line in tables(document)[0][1:]}
    assert {"Device", "Software", "Revision", "Protocol", "Timer", "Caches", "Cache probe"} <= set(facts)
    assert facts["Cache probe"].endswith("1.56 times as long")


@pytest.mark.spec("T2", "T36")
def test_each_case_shows_its_parameters_and_one_row_per_implementation(stored: StoredRun):
    document = markdown_report(stored)
    params = [table for table in tables(document) if table[0][0] in ("a", "x")]
    assert params[0] == [
        ["a", "b", "transpose", "bias"],
        ["float16[8, 512, 512]", "float16[8, 512, 512]", "false", "null"],
    ]
    assert [[row["implementation"] for row in table] for table in row_tables(document)] == [
        ["tileops", "vllm", "sglang", "vendor", "flashinfer"],
        ["tileops", "torch-cublas"],
        ["tileops", "torch"],
    ]


def test_a_row_shows_its_times_and_its_ratio_with_interval_and_verdict(stored: StoredRun):
    vllm = row_tables(markdown_report(stored))[0][1]
    assert vllm["device busy"] == "21.92 µs"
    assert vllm["gap"] == "2.08 µs"
    assert vllm["ratio [low, high]"] == "1.192 [1.188, 1.197] ours faster"
    assert vllm["% of speed of light"] == "12.0 %"


@pytest.mark.spec("T20", "T23", "T36")
def test_a_row_that_nothing_vouches_for_is_marked_in_bold_and_has_no_ratio(stored: StoredRun):
    document = markdown_report(stored)
    vendor = row_tables(document)[0][3]
    assert (vendor["check"], vendor["ratio [low, high]"]) == ("! noncomparable", "")
    assert "| **! noncomparable** |" in document
    assert "ratio [low, high]" not in row_tables(document)[2][0]
    assert [row["check"] for row in row_tables(document)[2]] == ["! unverified", "! unverified"]


def test_every_note_stands_below_its_table_under_the_number_in_the_row(stored: StoredRun):
    document = markdown_report(stored)
    case = document.partition("### `softmax/logits/float32`")[2].partition("## ")[0]
    (table,) = row_tables(case)
    assert [row["notes"] for row in table] == ["¹", "¹ ²"]
    assert "1. unverified: the reference ran out of memory: CUDA out of memory\n2. the second half" in case


def test_a_note_or_a_remark_that_looks_like_a_heading_or_a_list_is_text(
    make_row: Callable[..., Row], make_run: Callable[..., StoredRun]
):
    notes = ("# a heading", "1. an item", "> a quote")
    document = markdown_report(make_run(make_row(notes=notes), notes=notes))
    assert [text for text in items(document) if text in notes] == list(notes)
    assert [text for text in items(document) if text.startswith("note: ")] == [
        f"note: {note}" for note in notes
    ]


def test_our_own_row_is_bold(stored: StoredRun):
    assert "| **`tileops`** |" in markdown_report(stored)


def test_only_what_occurs_is_explained(stored: StoredRun, make_row: Callable[..., Row], make_run: Callable):
    document = markdown_report(stored)
    for word in ("device busy", "ratio [low, high]", "! unverified", "✗ failed", "gap"):
        assert f"- **{word}**: " in document
    small = markdown_report(make_run(make_row()))
    assert "- **device busy**" not in small
    assert "- **! unverified**" not in small
    assert "- **verified**: all outputs were compared" in small


def test_what_ran_on_the_device_is_listed_so_that_a_library_in_disguise_shows(
    make_row: Callable[..., Row], make_timing: Callable, make_run: Callable
):
    kernels = tuple(KernelShare(name=f"k|{i}", per_call=1.5, share=0.05) for i in range(14))
    document = markdown_report(make_run(make_row(timing=make_timing(kernels=kernels))))
    (table,) = [each for each in tables(document) if "per call" in each[0]]
    assert table[1] == ["vllm", "k|0", "kernel", "1.50", "5.0 %"]
    assert len(table) == 1 + 12 + 1
    assert table[-1][1] == "and 2 more"


def test_the_end_counts_the_checks_and_lists_what_is_suspicious(stored: StoredRun):
    document = markdown_report(stored)
    assert tables(document)[-1] == [
        ["check", "rows"],
        ["verified", "3"],
        ["partial", "1"],
        ["unverified", "2"],
        ["noncomparable", "1"],
        ["failed", "1"],
        ["unavailable", "1"],
    ]
    assert document.rstrip().splitlines()[-2].startswith("- **drift**: the halves of the passes differ")


def test_a_run_without_anything_suspicious_says_so(make_row: Callable[..., Row], make_run: Callable):
    document = markdown_report(make_run(make_row()))
    assert document.endswith("## Remarks\n\nNothing in the record makes this run suspicious.\n")
    assert "to look at" not in document


@pytest.mark.parametrize("end", [None, RunEnd(ended="now", rows=0)])
def test_a_run_without_rows_says_so(make_run: Callable[..., StoredRun], end: RunEnd | None):
    document = markdown_report(make_run(end=end))
    assert "This run holds no rows." in document
    assert "How to read" not in document
    assert headings(document) == ["Kernel benchmark on NVIDIA H200", "Remarks"]


@pytest.mark.spec("T27")
def test_a_run_that_only_checked_shows_errors_and_no_times(
    make_run: Callable[..., StoredRun], stored: StoredRun
):
    untimed = [row for row in stored.rows if row.case.endswith("bfloat16")]
    (table,) = row_tables(markdown_report(make_run(*untimed)))
    assert set(table[0]) == {"implementation", "backend", "check", "error / tolerance", "notes"}


def test_rows_without_an_op_stand_under_a_heading_of_their_own(
    make_row: Callable[..., Row], make_run: Callable
):
    assert "Comparisons" in headings(markdown_report(make_run(make_row(op=None))))


@example(text=" ")
@given(
    text=st.text(min_size=1, max_size=30) | st.text("`|\\*_[]()<>!/#&;:~@-+=.1a \n", min_size=1, max_size=12)
)
def test_no_text_from_outside_breaks_the_document(
    make_row: Callable[..., Row], make_run: Callable[..., StoredRun], text: str
):
    rows = [
        make_row(text, op=text, case=text, params={text: text}, note=text, backend=text, role=Role.OURS),
        make_row(text, op=text, case=text, check=Check.FAILED, note=text, notes=(text,)),
    ]
    document = markdown_report(make_run(*rows, notes=(text,)))
    (table,) = row_tables(document)
    assert [row["implementation"].strip() for row in table] == [visible(text).strip()] * 2
    assert [row["check"] for row in table] == ["verified", "✗ failed"]
    assert headings(document)[-2:] == ["Checks", "Remarks"]
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", document)
