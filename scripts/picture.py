"""Draw a stored run's table as an SVG: the picture in the README.

python scripts/picture.py RUN docs/report.svg --op RMSNormFwdOp --op BmmFwdOp
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from pathlib import Path

from rich.console import Console

from kernelmark.records import read_run
from kernelmark.report import console_table

WIDTH = 132


def draw(run_folder: Path, ops: list[str], title: str) -> str:
    """Render the rows of ``ops`` (all, without any) as a terminal would show them."""
    run = read_run(run_folder)
    rows = [row for row in run.rows if not ops or row.op in ops]
    if not rows:
        raise SystemExit(f"no rows of {', '.join(ops)} in {run_folder}")
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(console_table(rows, WIDTH))
    svg = console.export_svg(title=title or f"{run.header.device.name}, timer {run.header.protocol.timer}")
    # the fonts would be fetched from the net by whoever looks; any monospaced one will do
    return re.sub(r"@font-face\s*\{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> int:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run folder")
    parser.add_argument("output", type=Path, help="the SVG to write")
    parser.add_argument("--op", action="append", default=[], help="only this op's rows; may be given again")
    parser.add_argument("--title", default="")
    arguments = parser.parse_args()
    arguments.output.write_text(draw(arguments.run, arguments.op, arguments.title))
    print(arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
