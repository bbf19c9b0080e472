"""One workload call: its inputs, reference and check, made when first asked for and released after.

A case knows nothing of who will run it or how it is timed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernelmark.errors import EntryError
from kernelmark.harness.ambient import current_session
from kernelmark.manifest import TensorSpec
from kernelmark.manifest.levels.workloads import input_problem

if TYPE_CHECKING:
    from kernelmark.manifest import WorkloadCall

__all__ = ["Case", "Workload", "seed_of"]


class Workload(Protocol):
    """What makes a case's data: an input distribution, a reference, and a rule for checking outputs."""

    def gen_inputs(self) -> Any:
        """Make the inputs; runs with the device as torch's default device and a seed from the case's id."""
        ...

    def verification(self) -> Any:
        """Give the declaration that says how outputs are compared."""
        ...


def seed_of(case_id: str) -> int:
    """Derive a seed from a case's id, the same in every run on every machine."""
    return int.from_bytes(hashlib.sha256(case_id.encode()).digest()[:4], "big")


class Case:
    """One benchmark: inputs, constructor arguments, reference, numerical check and copy policy.

    ``inputs``, ``reference``, ``verification`` and ``workload`` are made on first access, on the device of
    the running session, and stay the same objects until :meth:`release`.

    Build cases with :func:`kernelmark.cases`; the constructor is for ways in that have no manifest.

    Args:
        case_id: Stable identifier.
        build: Makes the workload.
        op: Name of the op, where there is one.
        op_class: The class that a runner accepts for this case.
        library_name: What the op's own row is called.
        arguments: Keyword arguments that construct the op.
        params: Shapes, dtypes and parameters for the report.
        inputs: Makes the inputs from the workload, in place of its ``gen_inputs``.
        count_copies: Whether device-to-device copies inside ``run`` count as work.
        binder: Says how the op is called, in place of calling it with the inputs.
        seed: What the inputs are drawn with, in place of a number made from the id.
        declared: The manifest's call, which the inputs and the reference's answer are held against.
        home: Folder of what is measured, for the record.
    """

    def __init__(
        self,
        case_id: str,
        build: Callable[[], Any],
        *,
        op: str | None = None,
        op_class: type | None = None,
        library_name: str = "",
        arguments: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        inputs: Callable[[Any], Any] | None = None,
        count_copies: bool = False,
        binder: Callable[[Any, Case], Any] | None = None,
        seed: int | None = None,
        declared: WorkloadCall | None = None,
        home: Path | None = None,
    ) -> None:
        self.id = case_id
        self.op, self.op_class, self.library_name = op, op_class, library_name
        self.arguments = dict(arguments or {})
        self.params = dict(params or {})
        self.count_copies = count_copies
        self.binder = binder
        self.home = home
        self._declared = declared
        self._seed = seed
        self._build, self._make_inputs = build, inputs
        self._made: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"Case({self.id!r})"

    @property
    def workload(self) -> Any:
        """The object that made the inputs; derived data can be read from it."""
        return self._once("workload", self._build_workload)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The call-time inputs, in the order of the op's signature."""
        return self._once("inputs", self._generate)

    @property
    def reference(self) -> Callable[..., Any] | None:
        """The callable that gives the expected result, or ``None`` where there is none."""
        return self._once("reference", lambda: getattr(self.workload, "reference", None))

    @property
    def verification(self) -> Any:
        """The declaration that says how outputs are compared."""
        return self._once("verification", lambda: self.workload.verification())

    @property
    def seed(self) -> int:
        """The seed that the inputs are drawn with."""
        return seed_of(self.id) if self._seed is None else self._seed

    def require_declared_inputs(self) -> None:
        """Hold the inputs against the declared ones: name, shape, dtype, present or not.

        Raises:
            EntryError: they differ, so that a row would tell of sizes that never ran.
        """
        call = self._declared
        if call is None:
            return
        told = input_problem(call, [_spec(each) for each in self.inputs])
        if told:
            raise EntryError(f"{self.id}: {told}")

    def require_declared_outputs(self, answer: Any) -> None:
        """Hold the reference's ``answer`` against the declared outputs.

        Raises:
            EntryError: they differ.
        """
        call = self._declared
        if call is None:
            return
        outputs = () if answer is None else tuple(answer) if isinstance(answer, tuple | list) else (answer,)
        if len(outputs) != len(call.outputs):
            raise EntryError(
                f"{self.id}: the reference gives {len(outputs)} outputs; the manifest says {len(call.outputs)}:"
                f" {', '.join(call.outputs)}"
            )
        for (name, declared), output in zip(call.outputs.items(), outputs, strict=True):
            found = _spec(output)
            if found != declared:
                raise EntryError(
                    f"{self.id}: the reference gives {name} as {found}; the manifest says {declared}"
                )

    def release(self) -> None:
        """Let go of everything made so far; a later access makes it again, with the same values."""
        self._made.clear()

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def _build_workload(self) -> Any:
        with _drawing(self.seed):
            workload = self._build()
        for needed in ("verification", "gen_inputs"):
            if not callable(getattr(workload, needed, None)):
                raise EntryError(
                    f"case {self.id}: its entry built {type(workload).__name__}, which has no {needed}();"
                    " a workload needs gen_inputs(), reference and verification()"
                )
        return workload

    def _generate(self) -> tuple[Any, ...]:
        workload = self.workload
        with _drawing(self.seed):
            made = workload.gen_inputs() if self._make_inputs is None else self._make_inputs(workload)
        if isinstance(made, list):
            return tuple(made)
        return made if isinstance(made, tuple) else (made,)


def _spec(value: Any) -> TensorSpec | None:
    """Describe a tensor as the manifest does; what is none has its kind in place of a dtype."""
    if value is None:
        return None
    dtype = str(getattr(value, "dtype", type(value).__name__)).removeprefix("torch.")
    return TensorSpec(tuple(getattr(value, "shape", ())), dtype)


@contextmanager
def _drawing(seed: int) -> Iterator[None]:
    """Draw from ``seed`` on the session's device, and leave every generator as it was found."""
    import numpy
    import torch

    device = torch.device(current_session().device.torch_name)
    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    indices = [] if device.type == "cpu" else [device.index or 0]
    forked: dict[str, Any] = {} if device.type == "cpu" else {"device_type": device.type}
    try:
        with torch.random.fork_rng(devices=indices, **forked), device:
            torch.manual_seed(seed)
            random.seed(seed)
            numpy.random.seed(seed)
            yield
    finally:
        random.setstate(python_state)
        numpy.random.set_state(numpy_state)
