"""A worker of a search: loads the model once, compiles candidates, and lets the engine check or time them.

It may hang or die at any candidate: what it has told says how far it came. What it held is gone with it.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernelmark.errors import KernelmarkError, ModelError, VerificationError
from kernelmark.harness import Case, Implementation, Session, SessionOptions, make_plan, run_plan, use_session
from kernelmark.isolation import Channel
from kernelmark.models.case import Draws, check_on_second_draw, draw_twice, make_case, request_facts
from kernelmark.models.compilers import Contestant, Subject
from kernelmark.models.mlir import bound_code, build_options, facts_of_code
from kernelmark.models.request import policy_for, unpacked
from kernelmark.models.run import load_subject, told_of_memory
from kernelmark.models.state import State
from kernelmark.models.tuning.judging import MEASURE, TuneJob
from kernelmark.models.tuning.space import Candidate
from kernelmark.records import Check, Note, Role, Row
from kernelmark.text import message_of
from kernelmark.timing import Budget
from torchsched.building import Built, build
from torchsched.failures import Stage
from torchsched.heap import keep_large_blocks
from torchsched.ingress import LoadedModel
from torchsched.targets import Target

__all__ = ["carry_out"]

_DIGEST = 16


def carry_out(job: str, channel: Channel) -> None:
    """Carry out a packed :class:`~kernelmark.models.tuning.judging.TuneJob`; rows are handed over as they are made."""
    asked: TuneJob = unpacked(job)
    target = asked.request.resolve_target()
    keep_large_blocks()
    threads = torch.get_num_threads()
    torch.set_num_threads(target.threads)
    try:
        with torch.no_grad(), told_of_memory(asked.request.name):
            shop = _Shop(asked, channel, target, *load_subject(asked.request, "cpu"))
            if asked.budget is None:
                _check_all(shop)
            else:
                _measure(shop, asked.budget)
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True)
class _Shop:
    """One model, loaded, and what is made of it."""

    job: TuneJob
    channel: Channel
    target: Target
    subject: Subject
    loaded: LoadedModel

    def begin(self, candidate: Candidate) -> Callable[[Stage], None]:
        """Tell that a candidate begins; gives what tells each of its stages, all in the time that it may take."""
        self.channel.tell({"candidate": candidate.number})
        ends_s = time.monotonic() + self.job.limit_s
        return lambda stage: self.channel.stage(stage, limit_s=max(0.0, ends_s - time.monotonic()))

    def hand_over(self, row: Row) -> None:
        self.channel.tell({"row": row})

    def build(self, candidate: Candidate, began: Callable[[Stage], object]) -> Built:
        """Compile the model with a candidate's values; each stage is told as it begins."""
        options = build_options(
            self.job.request, self.target, element=self.job.element, values=candidate.values
        )
        return build(self.subject.model, self.subject.inputs, options, on_stage=began)

    def case(
        self,
        facts: Mapping[str, Any],
        case_id: str | None = None,
        inputs: tuple[Any, ...] | None = None,
        state: State | None = None,
    ) -> Case:
        """Make the case that the engine is given."""
        rule = policy_for(self.job.request.tolerance, self.job.element)
        facts = {**request_facts(self.job.request, self.loaded), **facts, **keep_large_blocks()}
        return make_case(
            self.subject, rule, facts, case_id=case_id or self.job.case_id, inputs=inputs, state=state
        )

    def session(self, *, budget: Budget | None = None) -> Session:
        """Take part in the run whose header the job has; without a budget, only check."""
        options = SessionOptions(
            device="cpu",
            verify_only=budget is None,
            cache=self.job.request.cache,
            budget=budget or Budget(),
            ceilings=False,
        )
        return Session(options, header=self.job.header)


# --- checking -----------------------------------------------------------------------------------------


def _check_all(shop: _Shop) -> None:
    known = dict(shop.job.known)
    draws = draw_twice(shop.subject)
    for candidate in shop.job.candidates:
        row = _checked(shop, candidate, known, draws)
        shop.hand_over(row)
        if row.check.comparable:
            known.setdefault(str(row.params["code"]), candidate.label)


def _checked(shop: _Shop, candidate: Candidate, known: Mapping[str, str], draws: Draws) -> Row:
    """Compile one candidate and check it; whatever goes wrong is its row."""
    reached, wrong, tell = [Stage.IMPORT], list[Row](), shop.begin(candidate)

    def began(stage: Stage) -> None:
        reached.append(stage)
        tell(stage)

    def failed(error: Exception, at: str) -> Row:
        note = str(error) if isinstance(error, ModelError) else f"{at}: {message_of(error)}"
        row = _row(shop, candidate, Check.FAILED, note)
        text = None if isinstance(error, KernelmarkError) else "".join(traceback.format_exception(error))
        return row.model_copy(update={"params": {**row.params, "stage": at}, "traceback": text})

    try:
        built = shop.build(candidate, began)
        code = _digest(built)
        facts = {"code": code, "threads": built.compiled.threads, "draws": str(draws)}
        if code in known:
            row = _row(shop, candidate, Check.VERIFIED, f"the same code as {known[code]}")
            return row.model_copy(update={"params": {**row.params, **facts, "same": known[code]}})
        began(Stage.RUN)
        contestant = Contestant(candidate.label, lambda inputs, state: bound_code(built, inputs, state))
        check_on_second_draw(
            contestant,
            shop.subject,
            draws,
            lambda case_id, inputs, state: shop.case(facts, case_id, inputs, state),
            wrong.append,
        )
        return _verified(shop, contestant, facts)
    except VerificationError as error:
        wrong += error.comparison or ()
        if not wrong:
            return failed(error, str(reached[-1]))
        return wrong[0].model_copy(update={"case": shop.job.case_id, "note": Note.error(error)})
    except ModelError as error:
        return failed(error, error.stage)
    except Exception as error:  # noqa: BLE001 - a compiler that breaks on a candidate is what was to be found out
        return failed(error, str(reached[-1]))


def _verified(shop: _Shop, contestant: Contestant, facts: Mapping[str, Any]) -> Row:
    """Let the engine check the code on the first draw of the inputs."""
    case, session = shop.case(facts), shop.session()
    code = contestant.bind(shop.subject.inputs, shop.subject.state)
    try:
        with use_session(session):
            return run_plan(make_plan(case, (contestant.name, code), {}), session).rows[0]
    finally:
        case.release()


def _row(shop: _Shop, candidate: Candidate, check: Check, note: str) -> Row:
    case = shop.case({})
    return Row(
        case=case.id,
        implementation=candidate.label,
        role=Role.OURS,
        check=check,
        note=Note.free(note),
        params=case.params,
        seed=case.seed,
    )


def _digest(built: Built) -> str:
    """Tell one candidate's code from another's: what LLVM got, and for how many threads."""
    text = f"{built.compiled.threads}\n{built.compiled.llvm_module}"
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]


# --- measuring ----------------------------------------------------------------------------------------


def _measure(shop: _Shop, budget: Budget) -> None:
    job, codes, threads = shop.job, dict[str, Implementation](), 1
    for candidate in job.candidates:
        built = shop.build(candidate, shop.begin(candidate))
        codes[candidate.label] = bound_code(built, shop.subject.inputs, shop.subject.state)
        threads = max(threads, built.compiled.threads)
    case, session = shop.case({**job.facts, **facts_of_code(threads)}), shop.session(budget=budget)
    ours, *others = codes
    shop.channel.stage(MEASURE)
    try:
        with use_session(session):
            run_plan(make_plan(case, (ours, codes[ours]), {name: codes[name] for name in others}), session)
    finally:
        case.release()
        for row in session.rows:
            shop.hand_over(row)
