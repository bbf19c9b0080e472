"""Between two jobs of one process, nothing of the first is left that the second could see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from kernelmark.harness.loading import load_module
from kernelmark.kernelfile.handover import Job
from kernelmark.kernelfile.jobs import _let_go


def test_the_next_size_is_compiled_as_in_a_process_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text("def reference(x):\n    return x * 2\n")
    seen = []

    def compiler(graph: torch.fx.GraphModule, inputs: list):
        seen.append([each for each in inputs if not isinstance(each, torch.Tensor)])
        return graph.forward

    def compiled(size: int) -> None:
        torch.compile(load_module(path).reference, backend=compiler)(torch.ones(size))

    compiled(3)
    compiled(4)
    # this is what would happen: the second size makes torch compile for sizes that vary
    assert [bool(each) for each in seen] == [False, True]
    _let_go()
    compiled(5)
    assert seen[2] == []


def test_a_module_of_the_last_job_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "solution.py"
    path.write_text("")
    name = load_module(path).__name__
    assert name in sys.modules
    _let_go()
    assert name not in sys.modules


def test_a_worker_s_stdin_is_not_where_its_jobs_come_from(tmp_path: Path) -> None:
    # a solution that reads stdin would otherwise take the parent's words
    program = (
        "from kernelmark.kernelfile.jobs import Orders\n"
        "orders = Orders()\nprint(repr(open(0, closefd=False).read()), orders.seed())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input='{"seed": 7}\n', capture_output=True, text=True, check=True
    )
    assert done.stdout == "'' 7\n"


def test_a_job_is_read_as_it_was_written(asked, tmp_path: Path) -> None:
    job = Job(tmp_path, asked(values={"N": "4"}), tmp_path / "k.so", 3)
    job.write()
    assert Job.read(tmp_path) == job
    assert os.listdir(tmp_path).count("job.json") == 1
