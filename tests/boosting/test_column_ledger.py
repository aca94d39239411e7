"""The ledger of `column_privacy`: one charge for each attempt that sends sums, whatever is killed, whenever.

Jobs, kills and crashes are those of `tests.campaign`, whose watch reads the ledger whenever a message with sums leaves.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.campaign import stages
from tests.campaign.cipher import KeysMade, ciphers
from tests.campaign.crash_points import points
from tests.campaign.kills import AWAY_S, messages, sample
from tests.campaign.noised_sums import noised_sums
from tests.campaign.plans import Plan
from tests.campaign.rig import Rig
from tests.campaign.schedule import carry_out
from tests.pivodl.small_job import nonces
from tests.simulator import COORDINATOR, Faults, Federation, Message, finished, run
from tests.worlds import PARTIES, manifest
from treetap import terminal
from treetap.commands.jobs import progress_view
from treetap.commands.model.view import card, describe
from treetap.models.durable import append
from treetap.models.line_file import LineFile
from treetap.party.defences.budgets import ColumnBudget
from treetap.party.growth.column_noise import ColumnNoise
from treetap.party.runtime.ledger import LEDGER, Kind, ledger_of
from treetap.privacy.column_privacy import ColumnPrivacy, sentences
from treetap.privacy.zcdp import epsilon_of
from treetap.terminal import PlainConsole
from treetap.wire.v2 import jobs_pb2

STAGE = "boosting-noised"
LABEL_HOLDER, FEATURE, _ = PARTIES
JOB = stages.stage(STAGE).job
_TABLE = stages.NOISED.column_privacy
assert _TABLE is not None
OWN = ColumnPrivacy(_TABLE.epsilon, _TABLE.delta, _TABLE.trees)
#: Plans of a test, and how many such tests there are of kills and of crashes: two of each, and more of a campaign.
EACH, TESTS = 12, 10
PARTS = [0, 1, *(pytest.param(part, marks=pytest.mark.campaign) for part in range(2, TESTS))]


def _kill(number: int, at: int, who: str) -> Plan:
    """A process killed at a message: by turns before and after it arrives, back at once and later."""
    served, back_s = number % 3 == 1, (0.0, AWAY_S)[number % 2]
    fault = {"kind": "kill", "who": who, "at": at, "served": served, "back_s": back_s}
    return Plan(number, STAGE, "train", {"draws": 0}, faults=(fault,))


def _places_of_sums() -> list[int]:
    """The numbers of the messages with noised sums in a training that nothing disturbs."""
    return [message.number for message in messages(STAGE) if message[1:4] == (FEATURE, LABEL_HOLDER, "candidate_sums")]


@pytest.mark.second_tier
@pytest.mark.parametrize("who", [FEATURE, LABEL_HOLDER, COORDINATOR])
def test_each_attempt_that_sends_sums_is_charged_once(who: str, tmp_path: Path) -> None:
    """A process killed at the first and at the last sums: an attempt draws anew, and the model has its noise."""
    places = _places_of_sums()
    for number, at in enumerate((places[0], places[-1])):
        outcome = carry_out(_kill(number, at, who), tmp_path / str(number))
        assert (outcome.findings, outcome.killed) == ([], 1), (at, who)


def _operations_of_the_charge(folder: Path) -> range:
    """The file operations of the feature party by which it charges its first attempt."""
    numbers: list[int] = []
    put = LineFile.put

    async def main() -> None:
        rig = Rig(folder, Plan(0, STAGE, "train"))

        def noted(file: LineFile, content: dict[str, Any], index: int) -> None:
            before = rig.disks.of[FEATURE].operations
            put(file, content, index)
            if file.path.name == LEDGER and content["kind"] == Kind.NOISED_SUMS:
                numbers.extend((before, rig.disks.of[FEATURE].operations))

        with rig.active(), pytest.MonkeyPatch.context() as patched:
            patched.setattr(LineFile, "put", noted)
            rig.begin()
            assert (await rig.federation.train(JOB)).state == "finished"
            await rig.federation.close()

    with ciphers(KeysMade(), transparent=True), nonces(0), noised_sums():
        run(main())
    return range(*numbers)


def _power_cut(at: int) -> Plan:
    fault = {"kind": "disk", "who": FEATURE, "at": at, "how": "power-strict", "for_s": 0.0, "back_s": 0.0}
    return Plan(at, STAGE, "train", {"draws": 0}, faults=(fault,))


@pytest.mark.second_tier
def test_a_charge_outlasts_a_power_cut(tmp_path: Path) -> None:
    """At each file operation of the charge, and at the first ones after it, when sums leave."""
    charge = _operations_of_the_charge(tmp_path / "whole")
    assert len(charge) > 2
    for at in range(charge.start, charge.stop + 2):
        outcome = carry_out(_power_cut(at), tmp_path / str(at))
        assert (outcome.findings, outcome.hits) == ([], 1), at


@pytest.mark.second_tier
@pytest.mark.parametrize("part", PARTS)
def test_kills_at_all_messages(part: int, tmp_path: Path) -> None:
    """A share of the kills of every process at every message."""
    for plan in sample(EACH * TESTS, (STAGE,))[part::TESTS]:
        assert carry_out(plan, tmp_path / str(plan.seed)).findings == [], plan.to_json()


@pytest.mark.second_tier
@pytest.mark.parametrize("part", PARTS)
def test_crashes_at_all_file_operations(part: int, tmp_path: Path) -> None:
    """A share of the crashes and power cuts of every process at each of its file operations."""
    for plan in list(points(EACH * TESTS, (STAGE,)))[part::TESTS]:
        assert carry_out(plan, tmp_path / str(plan.seed)).findings == [], plan.to_json()


@pytest.mark.second_tier
async def test_jobs_of_a_table_add_up_until_the_budget_is_spent(tmp_path: Path) -> None:
    """Of two jobs with an attempt lost each; then nothing leaves, the check says so, and publishing costs nothing."""
    with noised_sums() as watch, ciphers(KeysMade(), transparent=True):
        federation = stages.federation(tmp_path, STAGE, record=False)
        ledger = ColumnBudget(federation.state(FEATURE), None)
        _allow(federation, 3)
        federation.hook = _at(federation, FEATURE, "candidate_sums", sender=FEATURE)
        assert (await federation.train(JOB, "one")).state == "interrupted"
        assert (await federation.resume("one")).state == "finished"
        federation.hook = _at(federation, FEATURE, "store_tree", to=LABEL_HOLDER, served=True)
        assert (await federation.train(JOB, "two")).state == "interrupted"
        # a tree is stored, so that the job keeps it; it may go on once there is more to spend
        for attempts in (3, 4):
            _allow(federation, attempts)
            before = set(watch.sent[FEATURE])
            status = await federation.resume("two")
            if attempts == 3:
                assert "feature-b sends no sums of table 'train' in this attempt: it costs" in status.error
                assert status.state != "finished"
                assert watch.sent[FEATURE] == before
        assert (status.state, status.error) == ("finished", "")
        assert [(charge.occasion.job, charge.occasion.attempt) for charge in ledger.charges()] == [
            ("one", 1), ("one", 2), ("two", 1), ("two", 3)
        ]  # fmt: skip
        assert watch.sent[FEATURE] == {(charge.occasion.job, charge.occasion.attempt) for charge in ledger.charges()}
        assert ledger.spent("train") == pytest.approx(4 * OWN.rho)

        begun, disk = len(federation.log), ledger_of(federation.state(FEATURE)).path.read_bytes()
        asked = jobs_pb2.SubmitRequest(job="three", spec=JOB)
        replies = [answer async for reply in federation.jobs.submissions.check(asked) for answer in reply.answers]
        said = {answer.party: answer.error for answer in replies}
        status = await federation.train(JOB, "three")
        assert (status.state, status.error) == ("failed", f"Refused: {said[FEATURE]}")
        assert "column_budget = " in said[FEATURE]
        assert {party for party, error in said.items() if error} == {FEATURE}
        assert not [message for message in federation.log[begun:] if message.sender == FEATURE]
        assert ledger_of(federation.state(FEATURE)).path.read_bytes() == disk
        await federation.close()
        assert watch.found(stages.stage(STAGE), federation.states, 2) == []


def _allow(federation: Federation, attempts: int) -> None:
    """Start the feature party again with a budget for this number of attempts; 0: without one, which is one attempt."""
    config = federation.configs[FEATURE]
    budget = epsilon_of((attempts + 0.5) * OWN.rho, OWN.delta) if attempts else None
    federation.configs[FEATURE] = config.under(config.policy.with_lines({"columns": {"column_budget": budget}}))
    federation.restart(FEATURE)


def _at(
    federation: Federation,
    victim: str,
    word: str,
    *,
    sender: str = COORDINATOR,
    to: str = LABEL_HOLDER,
    served: bool = False,
) -> Callable[[Message], None]:
    """A hook that kills a process at the first such message; it is back at once."""

    def kill(message: Message) -> None:
        if message[1:] == (sender, to, word, served):
            federation.hook = None
            federation.restart(victim)

    return kill


async def test_a_retry_sends_the_same_bytes(tmp_path: Path) -> None:
    """Within an attempt, over a network that loses answers and doubles requests."""
    with noised_sums() as watch, ciphers(KeysMade(), transparent=True):
        federation = stages.federation(tmp_path, STAGE, record=False)
        federation.faults = Faults(seed=9, lose_reply=0.3, double=0.3, late_s=2.0)
        assert (await federation.train(JOB)).state == "finished"
        await federation.close()
        assert watch.found(stages.stage(STAGE), federation.states, 0) == []
    assert max(watch.times.values()) > 1
    assert watch.sent[FEATURE] == {("job", 1)}


async def test_a_resume_that_only_publishes_names_the_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In manifests, descriptions, the card and the status, though no key is made; a spent budget does not keep it."""
    text = io.StringIO()
    monkeypatch.setattr(terminal, "out", PlainConsole(file=text, width=160))

    with ciphers(KeysMade(), transparent=True):
        federation = stages.federation(tmp_path, STAGE, record=False)
        _allow(federation, 0)
        federation.hook = _at(federation, FEATURE, "publish", to=FEATURE)
        assert (await federation.train(JOB)).state == "interrupted"
        begun = len(federation.log)
        status = finished(await federation.resume())
        assert not {"make_keys", "candidate_sums"} & {message.word for message in federation.log[begun:]}
        assert len(ColumnBudget(federation.state(FEATURE), None).charges()) == 1
        progress_view.print_statuses([status])
        await federation.close()
        states = federation.states
    noise = manifest(states[FEATURE])["column_privacy"]
    assert (noise["epsilon"], noise["rho"]) == (OWN.epsilon, OWN.rho)
    assert manifest(states[LABEL_HOLDER])["column_privacy"] == {FEATURE: noise}
    for party in (LABEL_HOLDER, FEATURE):
        assert describe(states[party] / "models" / "job")["privacy"] == sentences({FEATURE: noise})
    assert card(states[LABEL_HOLDER] / "models" / "job", names=False)["privacy"] == sentences({FEATURE: noise})
    said = "epsilon 20000, delta 1e-06 in an attempt of at most 2 trees"
    assert f"job: sums of feature-b have noise (column_privacy): {said}" in text.getvalue()


def _planted(what: str, patched: pytest.MonkeyPatch) -> str:
    """Plant a fault; what the finding says."""
    charge, noise_of = ColumnNoise._charge, ColumnNoise.of
    if what == "no charge":
        patched.setattr(ColumnNoise, "_charge", lambda _: None)
        return "has charged it 0 times"
    if what == "two charges":
        patched.setattr(ColumnNoise, "_charge", lambda noise: (charge(noise), charge(noise)))
        return "has charged it 2 times"
    if what == "noise of the attempt before":
        kept: dict[tuple[int, int], Any] = {}

        async def old(noise: ColumnNoise, tree: Any, stage: int, nodes: list[int]) -> Any:
            drawn = await noise_of(noise, tree, stage, nodes)
            if drawn is None:
                return None
            order, of_nodes = tree.columns.order(nodes[0]), drawn.reshape(len(nodes), -1, drawn.shape[1])
            canonical = np.empty_like(of_nodes)
            canonical[:, order] = of_nodes
            return kept.setdefault((tree.index, stage), canonical)[:, order].reshape(drawn.shape)

        patched.setattr(ColumnNoise, "of", old)
        return "the same noise was drawn twice"
    assert what == "a charge that is not durable"

    def appended(path: Path, content: bytes) -> Any:
        if path.name != LEDGER:
            return append(path, content)
        with path.open("ab") as file:
            file.write(content)
        return path.stat()

    patched.setattr("treetap.models.line_file.append", appended)
    return "it is not charged"


@pytest.mark.second_tier
@pytest.mark.parametrize(
    "what", ["no charge", "two charges", "noise of the attempt before", "a charge that is not durable"]
)
def test_what_is_planted_is_found(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch sees the faults that it is there for."""
    charge = _operations_of_the_charge(tmp_path / "whole")
    at = _places_of_sums()[0]
    stages.after_training(STAGE)  # kept for later tests, so not with the fault
    said = _planted(what, monkeypatch)
    plans = [_power_cut(number) for number in range(charge.stop, charge.stop + 12)]
    findings: list[str] = []
    for plan in plans if what == "a charge that is not durable" else [_kill(0, at, LABEL_HOLDER)]:
        findings += carry_out(plan, tmp_path / str(plan.seed)).findings
    assert any(said in finding for finding in findings), findings
