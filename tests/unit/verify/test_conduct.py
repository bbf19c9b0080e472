"""What a candidate does to the process it shares is found, each by its name; what it may do is not."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, queue, sys, threading, time
import torch
import kernelmark.verify.verdict
from kernelmark.kernelbench.candidates.answers import look_at
from kernelmark.verify.conduct import Conduct

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
with torch.no_grad():
    model(torch.ones(1, 4))
    conduct = Conduct(model)
    assert (conduct.breach(), conduct.tampering()) == ("", "")
{body}
    print(conduct.tampering() or conduct.breach() or "nothing")
"""

WORDS = {
    "time.perf_counter_ns = lambda: 0": "time.perf_counter_ns is now",
    "torch.cuda.synchronize = print": "torch.cuda.synchronize is now",
    "torch.cuda.Event = int": "torch.cuda.Event is now",
    "torch.allclose = print": "torch.allclose is now",
    "torch.Tensor.sum = print": "torch.Tensor.sum is now",
    "kernelmark.verify.verdict.len = lambda x: 0": "kernelmark.verify.verdict.len is now",
    "torch.nn.Linear.forward = print": "Linear.forward is now",
    "del torch.nn.functional.relu": "torch.nn.functional.relu is now 'gone'",
    "kernelmark.verify.verdict.check_outputs = print": "kernelmark.verify.verdict.check_outputs is now",
    "torch.set_num_threads(torch.get_num_threads() + 1)": "torch.get_num_threads() was",
    "torch.set_float32_matmul_precision('high')": "torch.get_float32_matmul_precision() was highest and is high",
    "torch.set_default_dtype(torch.float16)": "torch.get_default_dtype() was torch.float32 and is torch.float16",
    "torch.set_grad_enabled(True)": "torch.is_grad_enabled() was False and is True",
    "torch.nn.modules.module.register_module_forward_hook(print)": "the global hooks of torch.nn",
    "library = torch.library.Library('aten', 'IMPL'); library.impl('mm', print, 'CPU')": "overridden: aten/mm/CPU",
    "torch._C._set_mkldnn_enabled(False)": "torch._C._get_mkldnn_enabled() was True and is False",
    "sys.setprofile(lambda *a: None)": "sys.getprofile() was None",
    "sys.setswitchinterval(1.0)": "sys.getswitchinterval() was 0.005 and is 1.0",
    "import torch._dynamo; torch.compiler.set_stance('force_eager')": "torch.compiler's stance was",
    "os.nice(1)": "the process's priority was",
    "model[0].weight.zero_()": "the weights of the problem's own model were written",
    "model[0].register_forward_hook(lambda *a: None)": "the weights of the problem's own model were written",
    "model.forward = print": "the weights of the problem's own model were written",
    "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()": "left 1 thread behind that was still",
    "conduct.calls_begin(); t = threading.Thread(target=int); t.start(); t.join()": "started 1 thread while it was",
    # what it may do
    "t = threading.Thread(target=int); t.start(); t.join()": "nothing",
    "torch.newly_made = print; import torch.utils.cpp_extension, torch.utils.benchmark": "nothing",
    "import torch._dynamo; torch.compile(torch.nn.GELU()); torch.manual_seed(3)": "nothing",
    "torch.manual_seed(3); torch.nn.Linear(4, 4)(torch.ones(1, 4))": "nothing",
    "import tqdm; bar = tqdm.tqdm([1], file=open(os.devnull, 'w'))": "nothing",
    "class Own(torch.nn.Linear):\n        forward = print": "nothing",
}
LATE = """
    def late():
        out = torch.zeros(1 << 16)
        def work():
            time.sleep(0.005)
            out.fill_(1)
        asked.put(work)
        return out
    asked = queue.Queue()
    def serve():
        while True:
            asked.get()()
    threading.Thread(target=serve, daemon=True).start()
    conduct._threads = set(sys._current_frames())  # so that only what they do is left to be found
    def first_breach(call):  # on a busy machine the thread's turn may come after a look at its result
        return next((told for _ in range(20) if (told := conduct.after_call(call, look_at)[1])), "none")
    print(first_breach(late))
    print(conduct.after_call(lambda: torch.ones(3), look_at)[1] or "in order")
    import kernelmark.verify.conduct as module
    module._WAIT_S = 1.0  # on a busy machine the thread gets a small part of it
    def busy():
        asked.put(lambda: [torch.randn(900, 900) @ torch.randn(900, 900) for _ in range(200)])
        return torch.ones(3)
    print(first_breach(busy), flush=True)
    os._exit(0)  # the thread still works, and would be in the way of an end in order
"""


def run(body: str) -> str:
    program = PROGRAM.replace("{body}", "    " + body)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_way_to_change_what_is_shared_is_named_and_what_is_allowed_is_not() -> None:
    # one interpreter forks for each: importing torch for each of them would take a minute
    forks = "import os\n    told = {}\n"
    for number, body in enumerate(WORDS):
        lines = body.replace("\n", "\n    ")
        forks += (
            "    read, write = os.pipe()\n"
            "    if os.fork() == 0:\n"
            f"        {lines}\n"
            "        os.write(write, (conduct.tampering() or conduct.breach() or 'nothing').encode())\n"
            "        os._exit(0)\n"
            "    os.close(write); os.wait()\n"
            f"    print({number}, os.fdopen(read, 'rb').read(2000))\n"
        )
    told = [line for line in run(forks).splitlines() if line[0].isdigit()]
    assert len(told) == len(WORDS)
    for line, (body, words) in zip(told, WORDS.items(), strict=True):
        assert words in line, (body, line)


def test_what_goes_on_after_a_call_has_returned_is_found_in_its_result_and_without() -> None:
    late, in_order, busy = run(LATE.strip()).splitlines()
    assert late == "was not finished when its call had returned: the result went on changing after that"
    assert in_order == "in order"
    assert busy.startswith("was not finished when its call had returned: other threads worked ")
