"""Between two requests of one worker, nothing of the first is left that the second could see."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import torch
from kernelmark.isolation.child import _let_go

seen = []

def compiler(graph, inputs):
    seen.append([each for each in inputs if not isinstance(each, torch.Tensor)])
    return graph.forward

def double(x):
    return x * 2

def compiled(size):
    torch.compile(double, backend=compiler)(torch.ones(size))

compiled(3)
compiled(4)
# this is what would happen: the second size makes torch compile for sizes that vary
assert [bool(each) for each in seen] == [False, True], seen
_let_go()
compiled(5)
print(seen[2])
"""


def test_the_next_size_is_compiled_as_in_a_process_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
