"""The dealer of shared sums: whom parties let deal, and that it deals each stage once.

A job is opened at three parties and a dealer; its steps `deal` are asked for here, as the coordinator does.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replay import HERE, PARAMS, ask, with_word
from tests.simulator import COORDINATOR, DEALER, Federation, Message
from tests.worlds import PARTIES, spec
from treetap.errors import BadInput, Disputed, Interrupted, Malformed, Pending, Refused, TreetapError, Unreachable
from treetap.party.approvals.job_checks import check_dealer
from treetap.party.dealer import dealer
from treetap.protocols.dealing import ACROSS, compared, pairs_of
from treetap.protocols.job_spec import check_spec
from treetap.protocols.key_options import LATTICE
from treetap.wire.frame import content_of
from treetap.wire.v2 import control_pb2, growth_pb2, setup_pb2

HOLDER, FIRST, SECOND = PARTIES
JOB = spec(replace(PARAMS, instance_spaces="withheld"), scheme=LATTICE, sums="shared", dealer=DEALER)
#: Bytes of corrections: more than fit a message.
CORRECTIONS = {FIRST: 1_100_000, SECOND: 10, ACROSS: 10}


def deal_bytes(pair: str, nodes: int, candidates: int, told: growth_pb2.DealtSizes) -> tuple[dealer.Part, dealer.Part]:
    """Parts of other lengths for each pair, in the place of what `treetap.shares` makes."""
    assert (candidates, [*told.widths]) == (3 if pair else 2, [9])
    other = dealer.Part(os.urandom(32), os.urandom(CORRECTIONS[pair]))
    return dealer.Part(os.urandom(32), os.urandom(nodes * candidates)), other


@pytest.fixture(autouse=True)
def _dealt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealer, "deal_pair", deal_bytes)


def _opening(attempt: int = 1, **changes: Any) -> control_pb2.StepRequest:
    request = with_word("prepare", attempt=attempt)
    opening = request.setup.prepare
    opening.spec.CopyFrom(JOB)
    opening.peers.add(name=DEALER, address=changes.pop("address", f"{DEALER}:1"))
    for name, value in changes.items():
        setattr(opening.spec, name, value)
    return request


async def _opened(federation: Federation, attempt: int = 1, parties: tuple[str, ...] = (*PARTIES, DEALER)) -> None:
    """Open an attempt, have parties hear of each other, and the dealer of its sizes."""
    for party in parties:
        await ask(federation, party, _opening(attempt))
    await _send(federation, HOLDER, DEALER, "dealt_sizes", growth_pb2.DealtSizes(candidates=[3, 3], widths=[9]))
    for party in (FIRST, SECOND):
        await _send(federation, HOLDER, party, "public_key", setup_pb2.PublicKeyMessage())
        await _send(federation, party, HOLDER, "candidate_count", setup_pb2.CandidateCount(candidates=3))


async def _send(federation: Federation, sender: str, to: str, kind: str, body: Any) -> None:
    process = federation.process(sender)
    await process.run(federation.node(sender)._sessions["job"].context.outbox.send(to, kind, [body]))


def _deal(tree: int = 0, stage: int = 0, nodes: tuple[int, ...] = (1,), attempt: int = 1) -> control_pb2.StepRequest:
    request = control_pb2.StepRequest(job="job", attempt=attempt, round=tree, stage=stage)
    request.growth.deal.nodes.extend(nodes)
    return request


async def _deal_again(federation: Federation, *opened: str, attempt: int = 1) -> None:
    """Have the dealer deal stage 0 anew for pairs that have opened what they got."""
    await _send(federation, HOLDER, DEALER, "opened_pairs", growth_pb2.OpenedPairs(pairs=opened))
    await ask(federation, DEALER, with_word("deal_again", attempt=attempt))


async def _received(federation: Federation, party: str, stage: int = 0, again: int = 0) -> dict[str, bytes]:
    """What a party got of the dealer, by pair: seed and corrections; or so many messages of what was dealt again."""
    kind = "dealt_again" if again else "correlations"
    parts: dict[str, bytes] = {}
    mailbox = federation.node(party)._sessions["job"].context.mailbox
    async for message in mailbox.series(DEALER, kind, 0, stage):
        body: growth_pb2.Correlations = content_of(message, kind)
        parts[body.pair] = parts.get(body.pair, b"") + body.seed + body.corrections
        if message.part == again - 1:
            break
    return parts


async def test_a_stage_is_dealt_to_the_parties_of_each_pair(tmp_path: Path) -> None:
    """The label holder gets a part for every pair, a feature party its own; new ones at every stage."""
    federation = Federation(tmp_path, HERE.tables, dealer=True)
    await _opened(federation)
    await ask(federation, DEALER, _deal())
    holder = await _received(federation, HOLDER)
    assert {pair: len(part) for pair, part in holder.items()} == {FIRST: 32 + 3, SECOND: 32 + 3, ACROSS: 32 + 2}
    first = await _received(federation, FIRST)
    assert {pair: len(part) for pair, part in first.items()} == {it: 32 + CORRECTIONS[it] for it in (FIRST, ACROSS)}
    assert {*await _received(federation, SECOND)} == {SECOND}
    with pytest.raises(TreetapError, match="deal of round 0, stage 1 cannot come now; expected deal_again"):
        await ask(federation, DEALER, _deal(stage=1, nodes=(2,)))
    await _deal_again(federation)
    await ask(federation, DEALER, _deal(stage=1, nodes=(2,)))
    again = await _received(federation, HOLDER, stage=1)
    assert len(again[FIRST]) == 32 + 2 * 3
    assert again[FIRST][:32] != holder[FIRST][:32]


async def test_pairs_that_have_opened_what_they_got_get_other_numbers(tmp_path: Path) -> None:
    """They alone; of a pair that the stage has not, nothing."""
    federation = Federation(tmp_path, HERE.tables, dealer=True)
    await _opened(federation)
    await ask(federation, DEALER, _deal())
    before = await _received(federation, HOLDER)
    await _deal_again(federation, SECOND, ACROSS)
    after = await _received(federation, HOLDER, again=2)
    assert {*after} == {SECOND, ACROSS} == {pair for pair in after if after[pair] != before[pair]}
    assert {*await _received(federation, FIRST, again=1)} == {ACROSS}
    assert {*await _received(federation, SECOND, again=1)} == {SECOND}
    await _opened(federation, attempt=2)
    await ask(federation, DEALER, _deal(attempt=2))
    with pytest.raises(Malformed, match=f"{HOLDER} says that pairs have opened what this stage does not deal"):
        await _deal_again(federation, HOLDER, attempt=2)


def test_pairs_and_nodes_of_a_stage() -> None:
    """Of several parties the first one chooses among the winners; siblings of nodes that are built are compared too."""
    assert pairs_of({"b": 4}) == {"b": ("b", 4)}
    assert pairs_of({"c": 7, "d": 1}) == {"c": ("c", 7), "d": ("d", 1), ACROSS: ("c", 2)}
    assert pairs_of({}) == {}
    assert (compared([1]), compared([2, 7]), compared([4, 5])) == ([1], [2, 3, 6, 7], [4, 5])


# ---- whom parties let deal


#: What is wrong → changes of a job, and what its check says.
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no dealer": (
        {"dealer": ""},
        "needs a dealer, a process of an organisation that is none of the parties'; write dealer",
    ),
    "a party deals": ({"dealer": FIRST}, f"dealer = '{FIRST}': is a party of the job"),
    "opened": ({"sums": "opened"}, f"dealer = '{DEALER}': deals for sums = 'shared' alone"),
    "another form": ({"sums": "hidden"}, "sums = 'hidden': must be one of opened, shared"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_whose_sums_nobody_could_deal_for_is_none(fault: str) -> None:
    """Whatever policies say."""
    changes, says = FAULTS[fault]
    job = setup_pb2.JobSpec()
    job.CopyFrom(JOB)
    check_spec(job)
    for name, value in changes.items():
        setattr(job, name, value)
    with pytest.raises(BadInput, match=says):
        check_spec(job)


#: What is wrong → who refuses to open the job, changes of the opening and of policies, and what the refusal says.
REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    **{
        f"not named by {party}": (
            *(party, {}, {party: {"people": {"dealers": []}}}),
            f"{party} takes no part in a job whose shared sums '{DEALER}' deals for: its policy says dealers = []",
        )
        for party in PARTIES
    },
    "it refuses": (DEALER, {}, {DEALER: {"people": {"label_holders": [], "peers": []}}}, "label_holders = "),
    "at a peer's address": (FIRST, {"address": f"{HOLDER}:7"}, {}, f"it is at the address of {HOLDER}"),
    "at one's own": (FIRST, {"address": f"{FIRST}:7"}, {}, f"it is at the address of {FIRST}"),
    "on this host": (HOLDER, {"address": "127.0.0.1:7"}, {}, "it is at the address of this host"),
    "a dealer as a party": (DEALER, {"feature_parties": DEALER}, {}, "dealer is a dealer, and is a party for nobody"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_dealer_that_is_not_to_deal_is_refused_before_the_job_opens(case: str, tmp_path: Path) -> None:
    """By name, with what to do; nothing of the job is kept."""
    party, changes, policies, says = REFUSED[case]
    federation = Federation(tmp_path, HERE.tables, dealer=True, policies=policies)
    member, changes = changes.pop("feature_parties", ""), {**changes}
    request = _opening(**changes)
    if member:
        request.setup.prepare.spec.feature_parties[:] = [member, SECOND]
        request.setup.prepare.spec.dealer, request.setup.prepare.spec.sums = "", ""
    with pytest.raises(Refused, match=re.escape(says)):
        await ask(federation, party, request)
    assert [*(federation.state(party) / "jobs").iterdir()] == []


async def test_a_party_deals_for_nobody(tmp_path: Path) -> None:
    """Another federation's job that names a party its dealer is refused there."""
    federation = Federation(tmp_path, HERE.tables, dealer=True)
    request = _opening(dealer=SECOND)
    request.setup.prepare.spec.feature_parties[:] = [FIRST]
    with pytest.raises(Refused, match=f"{SECOND} is a party, and deals for nobody"):
        await ask(federation, SECOND, request)


#: The organisations of a dealer's job, other than their processes' names; who refuses, and what it says.
ORGANISATIONS: dict[str, tuple[dict[str, str], str, str]] = {
    "none": ({DEALER: ""}, HOLDER, f"names the organisation (O) of {DEALER}"),
    "the label holder's": ({DEALER: "Bank", HOLDER: "BANK "}, FIRST, f"of the organisation of {HOLDER} ('Bank')"),
    "a feature party's": ({DEALER: "telco ltd", SECOND: "Telco  Ltd"}, HOLDER, f"of the organisation of {SECOND}"),
    "the peer has none": ({HOLDER: ""}, SECOND, f"names the organisation (O) of {HOLDER}"),
    "one's own": ({DEALER: FIRST}, FIRST, f"of the organisation of {FIRST}"),
}


@pytest.mark.parametrize("case", ORGANISATIONS)
async def test_nothing_is_taken_of_a_dealer_of_a_partys_organisation(case: str, tmp_path: Path) -> None:
    """Each party compares what it sees on connections: the dealer's step fails by name, and nothing was filed."""
    organisations, refusing, says = ORGANISATIONS[case]
    federation = Federation(tmp_path, HERE.tables, dealer=True, organisations=organisations)
    await _opened(federation)
    seen = {party: federation.organisations.get(party, party) for party in (*PARTIES, DEALER)}
    with pytest.raises(Refused, match=re.escape(says)):
        check_dealer(refusing, JOB, seen)
    with pytest.raises(Refused, match="takes nothing that dealer deals"):
        await ask(federation, DEALER, _deal())
    mailbox = federation.node(refusing)._sessions["job"].context.mailbox
    assert not [key for key in mailbox._series if key[1] == "correlations"]


def test_other_parties_of_one_organisation_are_no_matter(tmp_path: Path) -> None:
    """Of the organisation of a third feature party a dealer may be: this pair's shares it does not open with that."""
    del tmp_path
    check_dealer(FIRST, JOB, {HOLDER: "a", FIRST: "b", SECOND: "d", DEALER: "d"})
    with pytest.raises(Refused):
        check_dealer(HOLDER, JOB, {HOLDER: "a", FIRST: "b", SECOND: "d", DEALER: "d"})


# ---- once


@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("message", range(10))
async def test_a_dealer_killed_at_any_message_deals_no_stage_twice(message: int, served: bool, tmp_path: Path) -> None:
    """Started again it takes the same attempt, and refuses the stage that it had begun; a new attempt has new seeds."""
    federation = Federation(tmp_path, HERE.tables, dealer=True, silence_s=5)
    await _opened(federation)
    sent = 0

    def hook(seen: Message) -> None:
        nonlocal sent
        if seen.word in ("correlations", "dealt_again") and seen.served == served:
            sent += 1
            if sent == message + 1:
                federation.hook = None
                federation.kill(DEALER)

    federation.hook = hook
    with pytest.raises((Unreachable, Interrupted, asyncio.CancelledError)):
        await _dealt_twice(federation)
    federation.hook = None
    federation.start(DEALER)
    await ask(federation, DEALER, _opening())
    await _send(federation, HOLDER, DEALER, "dealt_sizes", growth_pb2.DealtSizes(candidates=[3, 3], widths=[9]))
    with pytest.raises(Refused, match="has dealt stage 0 of tree 0 before in attempt 1"):
        await ask(federation, DEALER, _deal())
    await _opened(federation, attempt=2)
    await ask(federation, DEALER, _deal(attempt=2))
    assert {*await _received(federation, HOLDER)} == {FIRST, SECOND, ACROSS}


async def _dealt_twice(federation: Federation) -> None:
    """Have a stage dealt, and dealt again for a pair that has opened what it got."""
    await _asked_over_the_wire(federation, _deal())
    await _send(federation, HOLDER, DEALER, "opened_pairs", growth_pb2.OpenedPairs(pairs=[FIRST]))
    await _asked_over_the_wire(federation, with_word("deal_again"))


async def _asked_over_the_wire(federation: Federation, request: control_pb2.StepRequest) -> None:
    """As the coordinator asks: the call ends with the dealer."""

    async def call(process: Any, _heard: bool) -> None:
        async for _ in process.node.step(COORDINATOR, request):
            pass

    await federation.carry(federation.process(COORDINATOR), DEALER, "deal", call)


async def test_a_dealer_keeps_its_marks_until_the_job_ends(tmp_path: Path) -> None:
    """Between attempts they stay; an end deletes the job's folder, and none opens again."""
    federation = Federation(tmp_path, HERE.tables, dealer=True)
    await _opened(federation)
    await ask(federation, DEALER, _deal())
    folder = federation.state(DEALER) / "jobs" / "job"
    assert (folder / dealer.DEALT).is_file()
    leave = with_word("leave")
    await ask(federation, DEALER, leave)
    assert (folder / dealer.DEALT).is_file()
    leave = with_word("leave", attempt=2)
    leave.setup.leave.ends = True
    await ask(federation, DEALER, leave)
    assert not folder.exists()
    with pytest.raises(BadInput, match="has ended here"):
        await ask(federation, DEALER, _opening(attempt=3))


async def test_sizes_of_other_parties_are_refused(tmp_path: Path) -> None:
    """A number for each feature party, and the label holder alone tells them."""
    federation = Federation(tmp_path, HERE.tables, dealer=True)
    for party in (*PARTIES, DEALER):
        await ask(federation, party, _opening())
    sizes = growth_pb2.DealtSizes(candidates=[3], widths=[9])
    with pytest.raises(TreetapError, match=f"dealt_sizes of {FIRST}: this party receives it from {HOLDER} only"):
        await _send(federation, FIRST, DEALER, "dealt_sizes", sizes)
    await _send(federation, HOLDER, DEALER, "dealt_sizes", sizes)
    with pytest.raises(TreetapError, match=f"{HOLDER} has told sizes of 1 feature parties"):
        await ask(federation, DEALER, _deal())


# ---- an attempt that ends by a check of a peer's numbers


async def _dispute(federation: Federation, party: str, attempt: int) -> None:
    """Have a step of this party's fail by such a check."""
    await ask(federation, party, _opening(attempt))

    async def conduct(_request: control_pb2.StepRequest) -> control_pb2.StepResult:
        raise Disputed(f"{SECOND} sent another score of node 2 than that of the left records")

    role: Any = federation.node(party)._sessions["job"].role
    role.steps = {**role.steps, "bin": conduct}
    with pytest.raises(Disputed):
        await ask(federation, party, with_word("bin", attempt=attempt))


async def test_after_a_failed_check_the_label_holders_people_alone_let_a_job_go_on_and_once(tmp_path: Path) -> None:
    """Also where jobs need no approval, or a standing one; a feature party's check asks nobody."""
    approvers = {"people": {"approvers": ["ann"]}}
    federation = Federation(tmp_path, HERE.tables, dealer=True)
    await _dispute(federation, FIRST, 1)
    await ask(federation, FIRST, _opening(2))
    await _dispute(federation, HOLDER, 1)
    with pytest.raises(Refused, match=f"name approvers under .people. of {HOLDER}'s policy"):
        await ask(federation, HOLDER, _opening(2))
    federation.kill(HOLDER)
    federation.policies = {HOLDER: approvers}
    federation.configs[HOLDER] = federation.configs[HOLDER].under(federation.policy(HOLDER))
    federation.start(HOLDER)
    for _ in range(2):
        with pytest.raises(Pending, match=f"waiting for approval of {HOLDER}"):
            await ask(federation, HOLDER, _opening(2))
    (asked,) = federation.node(HOLDER).approvals.listed("job")
    assert federation.node(HOLDER).approvals.state(asked) == "waiting"
    federation.node(HOLDER).approvals.decide("ann", "job", asked.digest, days=1)
    await _dispute(federation, HOLDER, 3)
    with pytest.raises(BadInput, match="has ended here twice by a check of a peer's numbers"):
        await ask(federation, HOLDER, _opening(4))
