"""A page is written as Markdown and as plain text from the same parts, and text from outside opens nothing in it."""

from __future__ import annotations

from kernelmark.report.columns import Align
from kernelmark.report.pages import (
    Block,
    Code,
    Details,
    Items,
    Link,
    Page,
    Section,
    Strong,
    Table,
    fields,
    page_markdown,
    page_text,
)

TABLE = Table(("name", "count"), (("a|b", "1"), ("c\nd", "20")), (Align.LEFT, Align.RIGHT))
PAGE = Page(
    "A title",
    (
        Section("", ("# no heading", Table(("", ""), (("label", "text"),)))),
        Section("Numbers", (Items(("one *word*", "- no list in it")), TABLE)),
    ),
)


def test_markdown_has_headings_lists_and_tables_and_escapes_what_stands_in_them() -> None:
    assert page_markdown(PAGE).splitlines() == [
        "# A title",
        "",
        "\\# no heading",
        "",
        "|  |  |",
        "| --- | --- |",
        "| label | text |",
        "",
        "## Numbers",
        "",
        "- one \\*word\\*",
        "- \\- no list in it",
        "",
        "| name | count |",
        "| --- | ---: |",
        "| a\\|b | 1 |",
        "| c; d | 20 |",
    ]


def test_plain_text_lines_its_columns_up_and_shows_no_empty_heading() -> None:
    assert page_text(PAGE).splitlines() == [
        "A title",
        "",
        "# no heading",
        "",
        "label  text",
        "",
        "NUMBERS",
        "",
        "  one *word*",
        "  - no list in it",
        "",
        "name  count",
        "a|b       1",
        "c; d     20",
    ]


def test_a_page_of_nothing_is_its_title() -> None:
    assert page_markdown(Page("Empty")) == "# Empty\n"
    assert page_text(Page("Empty")) == "Empty\n"


RICH = Page(
    "All kinds",
    (
        Section(
            "",
            (
                (Strong("FAIL"), ": 3 * 4 of ", Code("k_1.cu"), " are off"),
                fields([("Device", "a|b"), ("File", Code("k.cu"))]),
            ),
        ),
        Section(
            Code("out"),
            (
                Block("```\nend of its output"),
                Items((("see ", Link("Notes", "#notes")), "a *note*"), numbered=True),
                Details("More", ("folded",)),
            ),
            level=3,
        ),
    ),
)


def test_pieces_are_marked_and_text_between_them_is_escaped() -> None:
    assert page_markdown(RICH).splitlines() == [
        "# All kinds",
        "",
        "**FAIL**: 3 \\* 4 of `k_1.cu` are off",
        "",
        "|  |  |",
        "| --- | --- |",
        "| **Device** | a\\|b |",
        "| **File** | `k.cu` |",
        "",
        "### `out`",
        "",
        "````",
        "```",
        "end of its output",
        "````",
        "",
        "1. see [Notes](#notes)",
        "2. a \\*note\\*",
        "",
        "<details><summary>More</summary>",
        "",
        "folded",
        "",
        "</details>",
    ]


def test_a_console_shows_the_same_without_marks() -> None:
    assert page_text(RICH).splitlines() == [
        "All kinds",
        "",
        "FAIL: 3 * 4 of k_1.cu are off",
        "",
        "Device  a|b",
        "File    k.cu",
        "",
        "OUT",
        "",
        "  ```",
        "  end of its output",
        "",
        "  1. see Notes",
        "  2. a *note*",
        "",
        "More:",
        "",
        "folded",
    ]
