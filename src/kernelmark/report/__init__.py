"""What a run's records say, for a console, Markdown, JSON, CSV and JUnit: rendered, never computed."""

from kernelmark.report.console import console_report, console_table, console_text, html_table
from kernelmark.report.formats import Format, render, write_reports
from kernelmark.report.pages import write_report
from kernelmark.report.rows import check_lines, junit_properties, progress_line

__all__ = [
    "Format",
    "check_lines",
    "console_report",
    "console_table",
    "console_text",
    "html_table",
    "junit_properties",
    "progress_line",
    "render",
    "write_report",
    "write_reports",
]
