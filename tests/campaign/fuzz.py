"""Altered messages: one field of one message of a small job has a boundary value, and the job ends by name or rightly.

The cases are those of `fuzz_cases`; what a case may use of time and memory is in `limits`.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import Message

from tests.campaign.boundaries import changed
from tests.campaign.checks import logged
from tests.campaign.fuzz_cases import DECISIONS, ORDERS, QUESTIONS, STANDING, Case, intercept, the_same_opened, word_of
from tests.campaign.limits import Clock, TooLong, limited
from tests.campaign.small_jobs import (
    LABEL_HOLDER,
    SERVED,
    B,
    begin,
    go_on,
    play,
    right_answer,
    trained,
    training_of,
    wrong,
)
from tests.serving.served import CLIENT, IDS, WAYS, serve
from tests.simulator import Federation, run
from treetap.errors import Pending, TreetapError
from treetap.party.approvals.decisions import Asked
from treetap.party.approvals.desk import Desk
from treetap.party.approvals.ledger import Approvals
from treetap.party.policy import Policy
from treetap.wire.tls import Insecure
from treetap.wire.v2 import jobs_pb2, serving_pb2

#: (word, field), or a story and both → why its sender alone decides or knows what is right there: another value is
#: another honest message.
OWN_WORD = {
    ("prepare", "spec"): "the job that the coordinator orders; the label holder's parameters are those that count",
    ("open_model", "open_model"): "the prediction that the coordinator orders",
    ("children", "handle"): "a party's name for its own split; a prediction with another ends by name",
    ("route_queries", "records"): "the records that the label holder asks about, for its own use",
    ("route_answers", "left"): "directions at the party's own thresholds",
    ("divided_nodes", "place"): "the winning candidate that the source has taken",
    ("node_records", "records"): "which way records go at the source's own threshold",
    ("arrived_records", "records"): "which way records go at the party's own threshold",
    ("score_shares", "values"): "the party's own share, hidden by masks",
    ("record_bins", "codes"): "bins of the source's own columns",
    ("candidate_records", "records"): "the same, as lists of the records that go left",
    ("label_moments", "sum"): "a sum that only the encryption party has opened",
    ("label_moments", "sum_of_squares"): "the same",
    ("node_sums", "sums"): "sums that only their sender has opened",
    ("best_gains", "gain"): "a gain that only its split party has computed",
    ("gain_orders", "champion_stays"): "an outcome that only its challenger has opened",
    ("winning_sources", "source"): "the source of a candidate that only its split party has opened",
    ("winning_candidates", "places"): "the same",
    ("divided_nodes", "handle"): "a source's name for its own split; a prediction with another ends by name",
    ("leaf_weights", "weight"): "a weight that only its keeper has computed",
    ("embeddings", "values"): "outputs of a model that only the feature party has",
    ("shared_count", "records"): "the number that only the combiner has counted",
    ("preview of a count", "blinded_ids", "points"): "the ids of a list that comes from its owner",
    ("embedding_gradients", "values"): "gradients of a loss that only the label holder has",
}
#: CPU seconds that a case may take (a training takes 0.2), and bytes by which a process may grow meanwhile.
MOST_CPU_S, MOST_BYTES = 20.0, 400 * 2**20
#: Messages after which an altered order that was accepted is cancelled.
_ENOUGH = 300
_UNFORESEEN = re.compile(r"defect|Traceback|Error\('|failed \(\w+\)|object at 0x", re.IGNORECASE)


@dataclass
class Outcome:
    """`kind`: right, named, own word (see `OWN_WORD`), or finding. `says`: the error, or what did not hold."""

    kind: str
    says: str
    hit: bool = True


def carry_out(case: Case, folder: Path) -> Outcome:
    """Play a case in a new folder, which is deleted, and judge how it ends."""
    trained(training_of(case.place.story))
    clock = Clock()
    try:
        with logged() as log, limited(clock, MOST_CPU_S, MOST_BYTES), the_same_opened():
            outcome = run(clock.timed(_judged(case, folder)))
        if log.faults and outcome.kind != "finding":
            outcome = Outcome("finding", log.faults[0])
    except (Exception, TooLong, asyncio.CancelledError) as failure:  # noqa: BLE001 - any is a finding
        outcome = Outcome("finding", f"{type(failure).__name__}: {failure}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if clock.over:
        outcome = Outcome("finding", f"more than {MOST_CPU_S:g} s of processor time")
    return outcome


async def _judged(case: Case, folder: Path) -> Outcome:
    federation = begin(folder, case.place.story)
    try:
        if case.place.way == "order":
            return await _ordered(federation, case)
        if case.place.word == "Show":
            return await _shown(federation, case)
        if case.place.way == "decision":
            return _decided(case, folder)
        if case.place.way == "question":
            return await _questioned(federation, case)
        return await _altered(federation, case)
    finally:
        await federation.close()


async def _altered(federation: Federation, case: Case) -> Outcome:
    place, counted, hits = case.place, Counter[tuple[str, ...]](), 0
    story = place.story

    def alter(way: str, sender: str, to: str, message: Message) -> Message:
        nonlocal hits
        key = (way, sender, to, word_of(way, message))
        counted[key] += 1
        if hits or (*key, counted[key] - 1) != place[1:]:
            return message
        try:
            hits, made = 1, changed(message, case.change)
        except (IndexError, KeyError, AttributeError):  # a part that this run's message does not have
            return message
        return made

    intercept(federation, alter)
    status = await play(federation, story)
    outcome = _of_status(federation, story, status)
    outcome.hit = bool(hits)
    own = {key for field in case.change.path for key in ((place.word, field), (story, place.word, field))}
    if own & OWN_WORD.keys() and outcome.says.startswith("WRONG"):
        outcome.kind = "own word"
    if status.state in ("failed", "interrupted") and outcome.kind == "named" and story not in SERVED:
        after = _of_status(federation, story, await go_on(federation, story))
        if after.kind == "finding" or (after.kind == "named" and place.way == "message"):
            return Outcome("finding", f"{outcome.says}; resumed: {after.says}")
    return outcome


def _of_status(federation: Federation, story: str, status: jobs_pb2.JobStatus) -> Outcome:
    if status.state not in ("finished", "cancelled"):
        return _named(status.error)
    try:
        if says := wrong(federation, story):
            return Outcome("finding", f"WRONG: {says}")
    except TreetapError as error:  # a coordinator that asks for other steps leaves a part of a model unpublished
        return _named(str(error))
    return Outcome("right", "")


def _named(error: str) -> Outcome:
    if not error or _UNFORESEEN.search(error):
        return Outcome("finding", f"an error that is not named: {error!r}"[:400])
    return Outcome("named", error)


async def _ordered(federation: Federation, case: Case) -> Outcome:
    """An altered order of an operator: refused by name, or carried out until it ends or is cancelled."""
    jobs, word, order = federation.jobs, case.place.word, changed(ORDERS[case.place.word], case.change)
    order = type(order).FromString(order.SerializeToString())
    seen = 0
    enough = asyncio.Event()

    def count(_: object) -> None:
        nonlocal seen
        seen += 1
        if seen > _ENOUGH:
            enough.set()

    federation.hook = count
    try:
        if word == "Status":
            jobs.status(order.job)
        elif word == "Draft":
            jobs.submissions.draft(order)
        elif word == "Watch":
            async for _ in jobs.watch(order.job):
                pass
        elif word == "Check":
            async for _ in jobs.submissions.check(order):
                pass
        elif word == "Prune":
            jobs.prune(order.jobs, order.days, dry_run=order.dry_run)
        elif word == "Cancel":
            await jobs.cancel(order.job)
        else:
            job = jobs.resume(order.job) if word == "Resume" else jobs.submit(order)
            ended = asyncio.ensure_future(jobs.wait(job))
            await asyncio.wait({ended, asyncio.ensure_future(enough.wait())}, timeout=60, return_when="FIRST_COMPLETED")
            if not ended.done():
                await jobs.cancel(job)
            status = await ended
            if status.state not in ("finished", "cancelled"):
                return _named(status.error)
    except TreetapError as error:
        return _named(str(error))
    return Outcome("right", "")


def _decided(case: Case, folder: Path) -> Outcome:
    """An altered word of an approver: refused by name, or what it says; the job that waits is there as before."""
    approvals = Approvals(B, folder / "approvals", Insecure(B))
    policy = Policy(people={"approval": "manual", "approvers": ["ann"]})
    desk = Desk(B, approvals, lambda: policy)
    job = Asked("job", "train", bytes(32).hex(), "coordinator")
    with suppress(Pending):
        approvals.admit(policy, job, lambda: ("You send sums.",))
    if case.place.word != "Stand":
        approvals.stand("ann", STANDING)
    word = changed(DECISIONS[case.place.word], case.change)
    outcome = Outcome("right", "")
    try:
        getattr(desk, case.place.word.lower())("ann", type(word).FromString(word.SerializeToString()))
    except TreetapError as error:
        outcome = _named(str(error))
    kept = Approvals(B, folder / "approvals", Insecure(B))
    if [asked.job for asked in kept.listed()] != ["job"] or kept.listed() != approvals.listed():
        return Outcome("finding", "WRONG: the job that waits is another one on disk")
    return outcome


async def _shown(federation: Federation, case: Case) -> Outcome:
    """An altered question of an approver about the party: refused by name, or answered."""
    node, asked = federation.node(B), changed(DECISIONS["Show"], case.change)
    node.go_by(node.config.under(node.config.policy.with_lines({"people": {"approvers": ["ann"]}})))
    try:
        await node.overview.show("ann", type(asked).FromString(asked.SerializeToString()))
    except TreetapError as error:
        return _named(str(error))
    return Outcome("right", "")


async def _questioned(federation: Federation, case: Case) -> Outcome:
    """An altered question of a client: refused by name or answered rightly; the next one is answered."""
    await serve(federation, protocol="interactive", **{k: v for k, v in WAYS["interactive"].items() if k != "protocol"})
    served, outcome = federation.node(LABEL_HOLDER).served_models, Outcome("right", "")
    question = changed(QUESTIONS[case.place.word], case.change)
    try:
        if case.place.word == "Predict":
            right_answer(await served.predict(CLIENT, question, None))
        else:
            served.describe(CLIENT, question.model)
    except TreetapError as error:
        outcome = _named(str(error))
    right_answer(await served.predict(CLIENT, serving_pb2.PredictRecords(ids=IDS[:1]), None))
    return outcome
