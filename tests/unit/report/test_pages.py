"""A page is written as Markdown and as plain text from the same parts, and text from outside opens nothing in it."""

from __future__ import annotations

from kernelmark.report.columns import Align
from kernelmark.report.pages import Items, Page, Section, Table, page_markdown, page_text

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
