"""What a run's records say, for a console, Markdown, JSON, CSV and JUnit: rendered, never computed."""

from kernelmark.report.console import console_report, console_table, console_text
from kernelmark.report.junit import junit_properties
from kernelmark.report.lines import check_lines, progress_line
from kernelmark.report.run import Format, render, write_report, write_reports

__all__ = [
    "Format",
    "check_lines",
    "console_report",
    "console_table",
    "console_text",
    "junit_properties",
    "progress_line",
    "render",
    "write_report",
    "write_reports",
]
