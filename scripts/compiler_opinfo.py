"""Compile PyTorch's own operator samples and hold each answer against eager's.

    python scripts/compiler_opinfo.py --ops 'nn.functional.*' --dtypes f32,bf16 --samples 3
    python scripts/compiler_opinfo.py --out found.jsonl            # goes on where found.jsonl ends
    python scripts/compiler_opinfo.py --backward --dtypes f32      # gradients too
    python scripts/compiler_opinfo.py --table found.jsonl          # the table of what was found before
    python scripts/compiler_opinfo.py --table found.jsonl --page docs/reports/compiler-opinfo.md

The samples are those of ``torch.testing._internal.common_methods_invocations.op_db``. Each goes through
``torch.compile(..., backend="torchsched")``; a float answer is held against eager's in float64, all others are held
bit for bit. Inputs must keep their bits, and what shares memory in eager must share it here. Each operator has a
process of its own with a limit of time, so that one that dies or never ends is a line in the table.

The exit code is 1 where something is neither right nor refused by name.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import multiprocessing
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelmark.errors import ModelError as CompilerError
from torchsched.backend import Backend, BackendOptions

DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "bool": torch.bool,
}
SOURCE = "python scripts/compiler_opinfo.py --dtypes f32,i64,bool --samples 2 --seconds 40 --out found.jsonl"
"""What the kept page is made with."""
RIGHT = ("ok", "refused", "eager", "skipped")
"""What is no finding: ``eager`` is what dynamo gave no graph of, ``skipped`` what eager has no one answer for."""
FINDINGS = ("WRONG", "WROTE INPUT", "ALIASES", "NAMELESS", "ERROR", "CRASH", "HANG")

_PYTORCH = ("aten.", "prims.", "torch_nn.")
"""How the name of an operation begins that a user of PyTorch may know; others are the compiler's own."""
_UNSET = (
    "empty",
    "new_empty",
    "empty_like",
    "empty_strided",
    "new_empty_strided",
    "empty_permuted",
    "resize_",
)
"""Operators whose results hold whatever lay in memory."""
_UNSAFE = ("unsafe_chunk", "unsafe_split")
"""Operators whose results share memory in eager, and by their schema do not."""
_TIES = ("topk", "kthvalue", "median", "nanmedian", "mode")
"""Operators whose places, the second result, are those of any of several equal values."""
_BOUND = {torch.float32: (1e-4, 1e-5), torch.float64: (1e-9, 1e-10), torch.bfloat16: (2e-2, 1e-2)}
"""Of a float answer: relative and absolute. Beside that it may be four times as far off as eager is."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one sample."""

    op: str
    dtype: str
    sample: int
    values: str
    """``plain``, or ``nan`` where the floats of the sample have NaN, infinities and -0.0 put among them."""
    what: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to run of each operator."""

    dtypes: tuple[str, ...]
    samples: int
    backward: bool
    special: bool
    seconds: float


# --- one sample -----------------------------------------------------------------------------------------


def samples_of(op: Any, dtype: torch.dtype, most: int, *, backward: bool) -> list[Any]:
    """Give at most ``most`` samples, spread over all that the operator has."""
    torch.manual_seed(0)
    found = list(op.sample_inputs("cpu", dtype, requires_grad=backward))
    if len(found) <= most:
        return found
    step = (len(found) - 1) / max(most - 1, 1)
    return [found[round(step * number)] for number in range(most)]


def check(op: Any, sample: Any, *, special: bool, backward: bool) -> tuple[str, str]:
    """Compile one sample and compare; gives what it is, and how it differs."""
    leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[place] for place in places]
    if any(each.layout is not torch.strided or each.is_quantized for each in tensors):
        return "skipped", "not strided"
    if special:
        tensors = [_with_special_values(each) for each in tensors]

    def function(*given: torch.Tensor) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, given, strict=True):
            filled[place] = tensor
        input_, args, kwargs = pytree.tree_unflatten(filled, tree)
        return op.op(input_, *args, **kwargs)

    try:
        first, second = function(*_copies(tensors)), function(*_copies(tensors))
    except Exception as error:
        return _where_eager_raises(function, tensors, error)
    if not _outputs(first):
        return "skipped", "no tensors come out"
    if any(each.layout is not torch.strided for each in _outputs(first)):
        return "skipped", "not strided"
    if _bits(_outputs(first)) != _bits(_outputs(second)):
        return "skipped", "two runs in eager differ"
    given = _copies(tensors)
    before = _bits(given)
    backend = Backend(BackendOptions(threads=1))
    compiled = _compile(function, backend)
    eager_inputs = _copies(tensors)
    expected = function(*eager_inputs)
    written = _bits(eager_inputs)
    got = compiled(*given)
    if not any(each.compiled for each in backend.subgraphs):
        return "eager", "no graph was compiled"
    for number, (ours, theirs, was) in enumerate(zip(_bits(given), written, before, strict=True)):
        if ours != theirs and theirs == was:
            return "WROTE INPUT", f"input {number} has other values after the call"
    wrong = difference(got, expected, _in_float64(function, tensors))
    wrong = wrong or difference(given, eager_inputs, None)
    if name_of(op) in _TIES and not wrong.startswith("result 0"):
        wrong = ""
    if wrong:
        return "WRONG", wrong
    here, in_eager = _sharing([*_outputs(got), *given]), _sharing([*_outputs(expected), *eager_inputs])
    if here != in_eager and name_of(op) not in _UNSAFE:
        return "ALIASES", "what shares memory in eager does not here, or the other way round"
    if backward:
        wrong = _gradients_differ(function, compiled, tensors)
        if wrong:
            return "WRONG", wrong
    return "ok", ""


def _compile(function: Callable[..., Any], backend: Backend) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, dynamic=False)


def _where_eager_raises(
    function: Callable[..., Any], tensors: Sequence[torch.Tensor], error: Exception
) -> tuple[str, str]:
    try:
        _compile(function, Backend(BackendOptions(threads=1)))(*_copies(tensors))
    except Exception:
        return "ok", "raises as eager does"
    return "WRONG", f"eager raises {type(error).__name__}: {str(error)[:120]}"


def _with_special_values(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    changed = tensor.detach().clone()
    flat = changed.reshape(-1)
    values = [float("nan"), float("inf"), -float("inf"), -0.0]
    for number, value in enumerate(values[: max(1, flat.numel() // 2)]):
        flat[(number * 7 + 1) % flat.numel()] = value
    return flat.reshape(tensor.shape).requires_grad_(tensor.requires_grad)


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy each with its strides, and leave those that share memory apart."""
    copies = []
    for each in tensors:
        copy = each.detach().clone(memory_format=torch.preserve_format)
        copies.append(copy.requires_grad_(each.requires_grad))
    return copies


def _bits(tensors: Sequence[torch.Tensor]) -> list[bytes]:
    return [
        each.detach()
        .resolve_conj()
        .resolve_neg()
        .contiguous()
        .reshape(-1)
        .view(torch.uint8)
        .numpy()
        .tobytes()
        for each in tensors
    ]


def _outputs(value: Any) -> list[torch.Tensor]:
    return [each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor)]


def _in_float64(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Any:
    wide = [each.detach().double() if each.is_floating_point() else each for each in _copies(tensors)]
    try:
        with torch.no_grad():
            return function(*wide)
    except Exception:
        return None


def difference(got: Any, expected: Any, exact: Any) -> str:
    """Say how an answer differs from eager's; nothing if it does not."""
    ours, theirs = _outputs(got), _outputs(expected)
    if len(ours) != len(theirs):
        return f"{len(ours)} results and not {len(theirs)}"
    best = _outputs(exact) if exact is not None else []
    if len(best) != len(theirs):
        best = theirs
    for number, (a, b, c) in enumerate(zip(ours, theirs, best, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {number} is {a.dtype} {tuple(a.shape)} and not {b.dtype} {tuple(b.shape)}"
        a, b, c = a.detach(), b.detach(), c.detach()
        if not b.is_floating_point():
            if not torch.equal(a, b):
                where = (a != b).nonzero()[0].tolist()
                return f"result {number} differs at {where}: {a[tuple(where)]} and not {b[tuple(where)]}"
        elif said := _far(a.double(), b.double(), c.double() if c.shape == b.shape else b.double(), b.dtype):
            return f"result {number} {said}"
    return ""


def _far(a: torch.Tensor, b: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> str:
    relative, absolute = _BOUND.get(dtype, _BOUND[torch.bfloat16])
    finite = b.isfinite() & exact.isfinite()
    # What is not finite must be the same; where float64 alone is finite the narrow type has overflowed.
    same = (a == b) | (a.isnan() & b.isnan())
    allowed = absolute + relative * exact.abs() + 4 * (b - exact).abs()
    near = torch.where(finite, (a - exact).abs() <= allowed, same)
    if bool(near.all()):
        return ""
    where = (~near).nonzero()[0].tolist()
    place = tuple(where)
    return f"differs at {where}: {a[place]:.9g} and not {b[place]:.9g} ({int((~near).sum())} of {a.numel()})"


def _sharing(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    """Give the pairs that have their memory from one allocation."""
    places = [each.untyped_storage().data_ptr() if each.numel() else 0 for each in tensors]
    return [
        (first, second)
        for (first, a), (second, b) in itertools.combinations(enumerate(places), 2)
        if a == b and a
    ]


def _gradients_differ(
    function: Callable[..., Any], compiled: Callable[..., Any], tensors: Sequence[torch.Tensor]
) -> str:
    def gradients(of: Callable[..., Any], dtype: torch.dtype | None = None) -> list[torch.Tensor] | None:
        given = [
            each.detach()
            .to(dtype if dtype and each.is_floating_point() else each.dtype)
            .requires_grad_(each.requires_grad)
            for each in _copies(tensors)
        ]
        outputs = [each for each in _outputs(of(*given)) if each.requires_grad]
        if not outputs:
            return None
        torch.manual_seed(1)
        total = torch.stack(
            [(each * torch.randn(each.shape, dtype=torch.float64).to(each.dtype)).sum() for each in outputs]
        ).sum()
        total.backward()
        return [each.grad for each in given if each.grad is not None]

    try:
        expected = gradients(function)
    except Exception:
        return ""
    if expected is None:
        return ""
    try:
        exact = gradients(function, torch.float64)
    except Exception:
        exact = None
    said = difference(gradients(compiled), expected, exact)
    return f"gradient: {said}" if said else ""


# --- one operator, in a process of its own --------------------------------------------------------------


def run_operator(op: Any, asked: Asked, skip: set[tuple[str, int, str]], channel: Any) -> None:
    """Check the samples of one operator; sends each as it begins, and what became of it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in asked.dtypes:
        dtype = DTYPES[name]
        backward = asked.backward and dtype.is_floating_point and op.supports_autograd
        if dtype not in op.supported_dtypes("cpu"):
            continue
        try:
            samples = samples_of(op, dtype, asked.samples, backward=backward)
        except Exception as error:
            channel.send(Finding(name_of(op), name, 0, "plain", "skipped", f"no samples: {_short(error)}"))
            continue
        kinds = ("plain", "nan") if asked.special and dtype.is_floating_point and not backward else ("plain",)
        for number, values in itertools.product(range(len(samples)), kinds):
            if (name, number, values) in skip:
                continue
            channel.send((name, number, values))
            what, text = checked(op, samples[number], special=values == "nan", backward=backward)
            channel.send(Finding(name_of(op), name, number, values, what, text))
    channel.send(None)


def checked(op: Any, sample: Any, *, special: bool, backward: bool) -> tuple[str, str]:
    """Do as :func:`check`, and say of an error what it is."""
    if name_of(op) in _UNSET:
        return "skipped", "holds whatever lay in memory"
    if name_of(op) == "argsort":
        return "skipped", "any order of equal values is right"
    try:
        return check(op, sample, special=special, backward=backward)
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, CompilerError):
            cause = getattr(cause, "inner_exception", None) or cause.__cause__
        if isinstance(cause, CompilerError):
            named = (cause.op or "").startswith(_PYTORCH) or "it was made for: " in str(cause)
            return ("refused" if named else "NAMELESS"), f"{cause.op}: {_short(cause)}"
        if type(error).__module__.startswith("torch._dynamo"):
            return "eager", f"dynamo: {_short(error)}"
        return "ERROR", f"{_short(error)} at {traceback.format_exc().strip().splitlines()[-3].strip()}"


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:240]}"


def name_of(op: Any) -> str:
    """Name an operator with its variant."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def findings_of(op: Any, asked: Asked, done: set[tuple[str, int, str]]) -> Iterator[Finding]:
    """Run one operator in processes: after one that died or hung, another goes on behind that sample."""
    fork = multiprocessing.get_context("fork")
    finished = False
    while not finished:
        ours, theirs = fork.Pipe(duplex=False)
        worker = fork.Process(target=run_operator, args=(op, asked, set(done), theirs), daemon=True)
        worker.start()
        theirs.close()
        begun: tuple[str, int, str] | None = None
        what = text = ""
        while True:
            if not ours.poll(asked.seconds):
                worker.kill()
                what, text = "HANG", f"no answer in {asked.seconds:.0f} s"
                break
            try:
                message = ours.recv()
            except EOFError:
                worker.join()
                code = worker.exitcode or 0
                what, text = "CRASH", signal.Signals(-code).name if code < 0 else f"exit code {code}"
                break
            if message is None:
                finished = True
                break
            if isinstance(message, Finding):
                done.add((message.dtype, message.sample, message.values))
                begun = None
                yield message
            else:
                begun = message
        worker.join(5)
        if finished:
            return
        if begun is None:
            yield Finding(name_of(op), "-", 0, "plain", what, f"{text}, between samples")
            return
        done.add(begun)
        yield Finding(name_of(op), *begun, what, text)


# --- the table ------------------------------------------------------------------------------------------


def table(findings: Sequence[Finding]) -> str:
    """Count what became of the samples, for each dtype, and list what is a finding."""
    dtypes = list(dict.fromkeys(each.dtype for each in findings))
    counts = Counter((each.what, each.dtype) for each in findings)
    lines = [f"| | {' | '.join(dtypes)} | all |", f"|---|{'---|' * (len(dtypes) + 1)}"]
    for what in (*RIGHT, *FINDINGS):
        row = [counts[what, dtype] for dtype in dtypes]
        lines.append(f"| {what} | {' | '.join(map(str, row))} | {sum(row)} |")
    listed = [each for each in findings if each.what in FINDINGS]
    if listed:
        lines += ["", "| operator | dtype | sample | what | how |", "|---|---|---|---|---|"]
        lines += [
            f"| {each.op} | {each.dtype} | {each.sample}{' nan' if each.values == 'nan' else ''} | {each.what}"
            f" | {each.text.replace('|', '/')} |"
            for each in listed
        ]
    return "\n".join(lines)


def page(findings: Sequence[Finding], source: str) -> str:
    """Write the page that is kept: how many operators, the table, and what is refused."""
    refused: dict[str, Counter[str]] = {}
    for each in findings:
        if each.what == "refused":
            refused.setdefault(each.op, Counter())[each.text.partition(":")[0]] += 1
    operators = {each.op for each in findings}
    right = {each.op for each in findings if each.what == "ok"}
    lines = [
        "# PyTorch's operator samples, compiled",
        "",
        f"{len(operators)} operators of `op_db`, {len(findings)} samples; torch {torch.__version__}. Of"
        f" {len(right)} operators at least one sample is compiled and right, and {len(refused)} have samples that are"
        " refused by name.",
        "",
        "```bash",
        source,
        "```",
        "",
        "`ok` is right, with inputs kept bit for bit and results that share memory where eager's do; `refused` is an"
        " error that names the operator; `eager` is what dynamo gave no graph of; `skipped` has no one answer.",
        "",
        table(findings),
        "",
        "## Refused",
        "",
        "| operator | at | samples |",
        "|---|---|---|",
        *(f"| {op} | {', '.join(found)} | {sum(found.values())} |" for op, found in sorted(refused.items())),
    ]
    return "\n".join(lines) + "\n"


def read(path: Path) -> list[Finding]:
    """Read what an earlier run found."""
    if not path.exists():
        return []
    return [Finding(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines() if line]


def operators(patterns: Sequence[str]) -> list[Any]:
    """Give the operators whose names match one of ``patterns``."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if any(fnmatch.fnmatchcase(name_of(op), each) for each in patterns)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the command line says; gives the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ops", default="*", help="names, with * and ?, joined by commas")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help=f"of {', '.join(DTYPES)}")
    parser.add_argument("--samples", type=int, default=4, help="of each operator and dtype")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="every N-th operator, from the I-th")
    parser.add_argument("--backward", action="store_true", help="compare gradients as well")
    parser.add_argument("--special", action="store_true", help="also with NaN and infinities in the inputs")
    parser.add_argument("--seconds", type=float, default=120.0, help="for one sample")
    parser.add_argument("--out", type=Path, help="one line for each sample; goes on where it ends")
    parser.add_argument("--table", type=Path, help="print the table of an earlier run")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="write the page of an earlier run; needs --table"
    )
    asked = parser.parse_args(arguments)
    if asked.page and not asked.table:
        parser.error("--page is of an earlier run: give its file as --table")
    if asked.page:
        asked.page.write_text(page(read(asked.table), SOURCE), encoding="utf-8")
        return 0
    if asked.table:
        print(table(read(asked.table)))
        return 0
    dtypes = tuple(asked.dtypes.split(","))
    if unknown := [each for each in dtypes if each not in DTYPES]:
        parser.error(f"no dtype {unknown[0]!r}; there are {', '.join(DTYPES)}")
    part, parts = map(int, asked.part.split("/"))
    selected = operators(asked.ops.split(","))[part::parts]
    if not selected:
        parser.error(f"no operator is called {asked.ops!r}")
    request = Asked(dtypes, asked.samples, asked.backward, asked.special, asked.seconds)
    findings = read(asked.out) if asked.out else []
    # a kernel of torch's that has used several threads would hang in a forked child
    torch.set_num_threads(1)
    Backend(BackendOptions(threads=1))
    begin = time.monotonic()
    for number, op in enumerate(selected, start=1):
        done = {(each.dtype, each.sample, each.values) for each in findings if each.op == name_of(op)}
        for found in findings_of(op, request, done):
            findings.append(found)
            if asked.out:
                with asked.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(found)) + "\n")
            if found.what in FINDINGS:
                print(
                    f"{found.op} {found.dtype} {found.sample} {found.values}: {found.what}: {found.text}",
                    flush=True,
                )
        if sys.stderr.isatty():
            print(f"{number}/{len(selected)} {time.monotonic() - begin:.0f} s", end="\r", file=sys.stderr)
    print(table(findings))
    return int(any(each.what in FINDINGS for each in findings))


if __name__ == "__main__":
    sys.exit(main())
