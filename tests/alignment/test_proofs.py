"""Proofs that a returned list is the own one, raised by one exponent: what they refuse, what comes about without."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacl import bindings

from tests.alignment.previews import asked
from tests.alignment.test_protocol import NAMES, PARAMS, aligned, job, tables, watched
from tests.native.forms import HERE
from tests.simulator import Federation, Message, finished, run
from treetap.native import arithmetic
from treetap.party.alignment import lists as work
from treetap.party.alignment.steps import Alignment
from treetap.party.growth import label_holder_job
from treetap.party.runtime.step_order import step
from treetap.protocols.alignment import turns
from treetap.protocols.prediction import predict_request
from treetap.psi import proof
from treetap.psi.lists import PointList, group
from treetap.wire.frame import name_of
from treetap.wire.v2 import alignment_pb2, control_pb2, exchange_pb2, jobs_pb2

pytestmark = [
    pytest.mark.usefixtures("same_arithmetic_after"),
    pytest.mark.skipif(not HERE, reason="the kernels were not compiled"),
]
FIRST, OTHER = NAMES[:2]
#: The turn in which lists are returned.
RETURN = 3
ASKS: dict[str, dict[str, Any]] = {name: {"keys": {"alignment_proof": True}} for name in NAMES}
COMMON = [f"c{number:02d}" for number in range(35)]
IDS = [[*COMMON, *(f"{place}-{number}" for number in range(6 + place))] for place in range(2)]
Parcel = exchange_pb2.PeerMessage


def trained(
    folder: Path,
    policies: dict[str, dict[str, Any]],
    tamper: Callable[[str, str, Parcel], Parcel] | None = None,
    ids: list[list[str]] = IDS,
) -> tuple[jobs_pb2.JobStatus, list[list[str]]]:
    """The job's end, and what each party had aligned when the columns were binned, if they were."""

    async def main() -> tuple[jobs_pb2.JobStatus, list[list[str]]]:
        federation = Federation(folder, tables(ids), policies=policies)
        federation.tamper, found = tamper, watched(federation)
        return await federation.train(job(len(ids), PARAMS)), found

    return run(main())


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    "asking", [(), (FIRST,), (OTHER,), (FIRST, OTHER)], ids=lambda names: "+".join(names) or "none"
)
def test_who_asks_gets_a_proof_and_all_find_the_same(
    asking: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records are those that both hold, as without a proof; calls and messages that end anywhere do not matter.

    A party that is not asked sends neither signs nor a proof.
    """
    monkeypatch.setattr(work, "POINTS_PER_CALL", 5)
    monkeypatch.setattr(work, "POINTS_PER_MESSAGE", 7)
    proofs: Counter[str] = Counter()
    signs: Counter[str] = Counter()

    def note(sender: str, _to: str, parcel: Parcel) -> Parcel:
        proofs[sender] += len(parcel.alignment.sum_of_list.proofs)
        signs[sender] += len(parcel.alignment.blinded_ids.signs)
        return parcel

    status, found = trained(tmp_path, {name: ASKS[name] for name in asking}, note)
    assert (status.state, status.error) == ("finished", "")
    assert sorted(found[0]) == COMMON
    assert found[0] == found[1]
    proving = {FIRST: OTHER in asking, OTHER: FIRST in asking}
    assert {name: bool(proofs[name]) for name in NAMES[:2]} == proving
    assert {name: bool(signs[name]) for name in NAMES[:2]} == proving


class Reflecting(Alignment):
    """A party that calls all of the other's records common: it sends random points, and returns what it gets back."""

    @step()
    async def blind_ids(self) -> None:
        """Points of nothing."""
        self._begin_key()
        await self._proofs.announce(self._own)
        self._shuffle, made = np.arange(len(self._ids)), self._lists.empty()
        made.append(group().hash_points(secrets.token_bytes(64 * len(self._ids))))
        self._hold(made)

    @step()
    async def pass_ids(self, request: control_pb2.StepRequest) -> None:
        """Take the points that the other has raised, and return them, with signs."""
        if request.stage != RETURN:
            await super().pass_ids(request)
            return
        (answer,) = await self._lists.take_all([1], RETURN)
        answer.signs = PointList(self._context.scratch.file(), width=1)
        answer.signs.append(bytes(len(answer)))
        await self._lists.send(OTHER, answer, RETURN)
        self.answer = answer

    @step()
    async def raise_ids(self, request: control_pb2.StepRequest) -> None:
        """Raise nothing."""

    @step()
    async def match_ids(self) -> None:
        """All are common."""
        points = np.sort(np.frombuffer(self.answer.take(0, len(self.answer)), dtype="S32"))
        self._matched, self._digest = [np.arange(len(points))], hashlib.sha256(points.tobytes()).digest()


@pytest.mark.parametrize("proven", [False, True])
def test_points_that_are_sent_back(proven: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a proof all records of a party are common to one that holds none of them; with a proof the job ends."""

    def made(context: Any, *args: Any, **named: Any) -> Alignment:
        return (Reflecting if context.party == FIRST else Alignment)(context, *args, **named)

    monkeypatch.setattr(label_holder_job, "alignment_of", made)
    own = [f"patient {number}" for number in range(40)]
    ids = [[f"nobody {number}" for number in range(40)], own]
    status, found = trained(tmp_path, {OTHER: ASKS[OTHER]} if proven else {}, ids=ids)
    if not proven:
        assert status.state == "finished", status.error
        assert sorted(found[1]) == sorted(own)
        return
    assert (status.state, found) == ("failed", [])
    assert f"the blinded identifiers of {OTHER} did not come back raised by one exponent" in status.error
    assert f"{FIRST} has changed them" in status.error
    assert "Settle that with their operators" in status.error


class Related(Reflecting):
    """The same by an exponent that it does not know: the other's times one of its own, whose key it can compute.

    It sends the other's points times its own exponent, and has the other raise these, and the other's sum, for it.
    """

    @step()
    async def blind_ids(self) -> None:
        """Send the other's key times the own exponent, as the own key."""
        self._begin_key()
        theirs = await self._context.mailbox.only(OTHER, "alignment_key")
        own = alignment_pb2.AlignmentKey(key=proof.raised_by(self._exponent, theirs.key), asks=True)
        await self._context.outbox.send(OTHER, "alignment_key", [own])
        self._proofs.asking = {FIRST, OTHER}
        self._lists.signed_at = self._signed()

    @step()
    async def pass_ids(self, request: control_pb2.StepRequest) -> None:
        """Take a list before sending one: the own ids are the other's, raised; what comes back of them is sent back."""
        (taken,) = await self._lists.take_all([1], request.stage)
        if request.stage != RETURN:
            made = await self._lists.raised(taken, self._exponent, signed=True)
            (self.turned, made.signs), self._shuffle = (made.signs, None), np.arange(len(made))
            await self._lists.send(OTHER, made, request.stage)
            return
        assert taken.signs is not None
        assert self.turned is not None
        signs = zip(taken.signs.take(0, len(taken)), self.turned.take(0, len(taken)), strict=True)
        self.turned.put(0, bytes(one ^ other for one, other in signs))
        taken.signs, self.answer = self.turned, taken
        await self._lists.send(OTHER, taken, request.stage)

    @step()
    async def prove_ids(self) -> None:
        """Have the other raise its own sum; return that, times the own exponent, with the other's proof."""
        mailbox, outbox = self._context.mailbox, self._context.outbox
        chain = await mailbox.only(OTHER, "sum_of_list", 0, 0)
        await outbox.send(OTHER, "sum_of_list", [chain], stage=0)
        raised = await mailbox.only(OTHER, "sum_of_list", 0, 1)
        raised.points[1] = proof.raised_by(self._exponent, raised.points[1])
        await outbox.send(OTHER, "sum_of_list", [raised], stage=1)


@pytest.mark.parametrize("checked", [True, False])
def test_sums_raised_by_an_unknown_exponent(checked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum returns as that of the returned list; the proof alone says that its maker does not know the exponent."""

    def made(context: Any, *args: Any, **named: Any) -> Alignment:
        return (Related if context.party == FIRST else Alignment)(context, *args, **named)

    monkeypatch.setattr(label_holder_job, "alignment_of", made)
    if not checked:
        monkeypatch.setattr(proof, "holds", lambda *_: True)
    own = [f"patient {number}" for number in range(40)]
    status, found = trained(tmp_path, {OTHER: ASKS[OTHER]}, ids=[[f"nobody {number}" for number in range(40)], own])
    if checked:
        assert (status.state, found) == ("failed", [])
        assert f"{FIRST} did not prove to {OTHER} that it raised the sum" in status.error
        return
    assert status.state == "finished", status.error
    assert sorted(found[1]) == sorted(own)


def _of_another_exponent(points: bytes) -> bytes:
    return group().raise_points((2**254 + 8 * 12345).to_bytes(32, "little"), points[:32]) + points[32:]


def _spoilt(parcel: Parcel, what: str) -> None:
    """Change a message of the return, of the key or of the sum, in one way."""
    ids, chain = parcel.alignment.blinded_ids, parcel.alignment.sum_of_list
    if name_of(parcel) == "alignment_key":
        key = parcel.alignment.alignment_key
        if what == "another key":
            key.key = bindings.crypto_scalarmult_ed25519_base_noclamp((5).to_bytes(32, "little"))
        if what == "no key":
            key.key = b""
        if what == "a key of low order":
            key.key = bytes(32)
        return
    if name_of(parcel) == "sum_of_list":
        if what == "another challenge":
            _spoil(parcel)
        if what == "no proof":
            del chain.proofs[:]
        if what == "an empty proof":
            chain.proofs[0].CopyFrom(alignment_pb2.ListProof())
        if what == "a response above the order":
            chain.proofs[0].response = b"\xff" * 32
        if what in ("another sum", "another raised sum"):
            _replace(parcel, int(what != "another sum"))
        return
    points = ids.points
    if what == "two points exchanged":
        ids.points = points[32:64] + points[:32] + points[64:]
    elif what == "all points reordered":
        ids.points = points[-32:] + points[:-32]
    elif what == "one point of another exponent":
        ids.points = _of_another_exponent(points)
    elif what == "a sign turned":
        ids.signs = bytes([ids.signs[0] ^ 128]) + ids.signs[1:]
    elif what == "no signs":
        ids.signs = b""


FAULTS = {
    "two points exchanged": "the blinded identifiers of clinic did not come back raised by one exponent",
    "all points reordered": "in their order: lab has changed them",
    "one point of another exponent": "did not come back raised",
    "a sign turned": "did not come back raised",
    "no signs": "lab sent 0 signs for 41 identifiers: a proof needs one each",
    "another challenge": "lab did not prove to clinic that it raised the sum of its identifiers by one exponent",
    "no proof": "the sum of the identifiers of clinic did not come back from lab",
    "an empty proof": "lab did not prove",
    "a response above the order": "lab did not prove",
    "another sum": "the sum of the identifiers of clinic did not come back from lab",
    "another raised sum": "lab did not prove",
    "another key": "lab did not prove",
    "no key": 'which lab cannot give: they need compiled kernels; set arithmetic = "native" in the file of lab',
    "a key of low order": "the key that lab sent clinic before its identifiers is no point of the group",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_party_changes_in_its_answer_is_told(fault: str, tmp_path: Path) -> None:
    """By the party that asks, which compares no list then."""

    def tamper(sender: str, _to: str, parcel: Parcel) -> Parcel:
        lists = name_of(parcel) == "blinded_ids" and parcel.stage == RETURN
        if sender == OTHER and (lists or name_of(parcel) == "alignment_key" or parcel.alignment.sum_of_list.proofs):
            _spoilt(parcel, fault)
        return parcel

    status, found = trained(tmp_path, {FIRST: ASKS[FIRST]}, tamper)
    assert (status.state, found) == ("failed", [])
    assert FAULTS[fault] in status.error


@pytest.mark.parametrize("sign", [0, 128])
def test_a_key_that_comes_back_is_refused(sign: int, tmp_path: Path) -> None:
    """Nor is its negative: who sends a party's key, lists and proofs back to it would need no exponent of its own."""
    keys: list[bytes] = []

    def tamper(_sender: str, _to: str, parcel: Parcel) -> Parcel:
        if name_of(parcel) == "alignment_key":
            keys.append(parcel.alignment.alignment_key.key)
            turned = sign if len(keys) > 1 else 0
            parcel.alignment.alignment_key.key = keys[0][:-1] + bytes([keys[0][-1] ^ turned])
        return parcel

    status, found = trained(tmp_path, ASKS, tamper)
    assert (status.state, found) == ("failed", [])
    assert "before its identifiers is another party's too" in status.error


def test_a_party_that_is_asked_and_has_no_kernels_is_named(tmp_path: Path) -> None:
    """By itself, before a list leaves."""

    def tamper(sender: str, _to: str, parcel: Parcel) -> Parcel:
        assert name_of(parcel) != "blinded_ids"
        return parcel

    arithmetic.use("gmpy2")
    status, _ = trained(tmp_path, {FIRST: ASKS[FIRST]}, tamper)
    assert status.state == "failed"
    assert f"{FIRST} takes no part in this alignment: its policy says alignment_proof = true" in status.error
    assert "has no compiled kernels" in status.error


def test_an_alignment_without_proofs_is_refused(tmp_path: Path) -> None:
    """Digests of ids have none: a policy that asks for one names that."""

    async def main() -> jobs_pb2.JobStatus:
        federation = Federation(tmp_path, tables([COMMON] * 2), policies={OTHER: ASKS[OTHER]})
        asked = job(2)
        asked.alignment = "sorted-ids"
        return await federation.train(asked)

    status = run(main())
    assert status.state == "failed"
    assert f"{OTHER} takes no part in this alignment" in status.error
    assert "there is no proof, as it is by sorted-ids" in status.error


@pytest.mark.parametrize("proven", [False, True])
async def test_a_resumed_job_goes_on_with_a_proven_alignment_alone(proven: bool, tmp_path: Path) -> None:
    """Once a policy asks. Without, as with an alignment that was proven, records and their order stay."""
    proofs: list[str] = []
    orders: list[list[list[str]]] = []

    federation = Federation(tmp_path, tables(IDS), policies=ASKS if proven else {})

    def note(sender: str, _to: str, parcel: Parcel) -> Parcel:
        proofs.extend([sender] * len(parcel.alignment.sum_of_list.proofs))
        return parcel

    def hook(message: Message) -> None:
        if message.word == "bin":
            orders.append(aligned(federation))
            if len(orders) == 1:
                federation.kill(OTHER)

    federation.tamper, federation.hook = note, hook
    assert (await federation.train(job(2))).state == "interrupted"
    _ask(federation, not proven)
    status = await federation.resume()
    if not proven:
        assert status.state == "interrupted"
        assert "job job was aligned without a proof to clinic; take that line out of the policy" in status.error
        _ask(federation, False)
        status = await federation.resume()
    assert (status.state, status.error) == ("finished", "")
    await federation.close()
    assert len(orders) > 1
    assert all(order == orders[0] for order in orders)
    assert sorted(proofs) == (sorted(NAMES[:2]) if proven else [])


def _ask(federation: Federation, asks: bool) -> None:
    """Restart both parties, with or without the line in their policies."""
    federation.policies = ASKS if asks else {}
    for name in NAMES[:2]:
        if federation.alive(name):
            federation.kill(name)
        federation.configs[name] = federation.configs[name].under(federation.policy(name))
        federation.start(name)


async def test_previews(tmp_path: Path) -> None:
    """Of rows, which are aligned as in a job, with proofs; of a count they are refused."""
    rows = {name: {"columns": {"preview": "records"}, "keys": {"alignment_proof": True}} for name in NAMES}
    status = await asked(tmp_path / "rows", IDS, rows, answer="records")
    assert (status.state, status.common.records) == ("finished", len(COMMON))
    status = await asked(tmp_path / "count", IDS, rows, answer="count")
    assert status.state == "failed"
    assert "there is no proof, as it is by a count" in status.error


async def test_predictions_have_proofs_too(tmp_path: Path) -> None:
    """Each alignment has its own."""
    proofs: Counter[str] = Counter()

    federation = Federation(tmp_path, tables(IDS), policies=ASKS)

    def note(sender: str, _to: str, parcel: Parcel) -> Parcel:
        proofs[parcel.job] += len(parcel.alignment.sum_of_list.proofs)
        return parcel

    federation.tamper = note
    assert (await federation.train(job(2))).state == "finished"
    finished(await federation.predict(predict_request(model="job")))
    await federation.close()
    assert sorted(proofs.values()) == [2, 2]


# ---- a ring

IN_RING = [[*COMMON, *(f"{place}-{number}" for number in range(4 + place))] for place in range(4)]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("parties", [3, 4])
@pytest.mark.parametrize("asking", [(), (0,), (1, 2), (0, 1, 2)], ids=str)
def test_a_ring_proves_to_those_who_ask(parties: int, asking: tuple[int, ...], tmp_path: Path) -> None:
    """All find the plain intersection; nobody gets a list that it did not get without, sums go around in its place."""
    lists: set[tuple[str, str, int]] = set()
    sums = Counter[int]()

    def note(sender: str, to: str, parcel: Parcel) -> Parcel:
        if name_of(parcel) == "blinded_ids":
            lists.add((sender, to, parcel.stage))
        if name_of(parcel) == "sum_of_list":
            sums[len(parcel.alignment.sum_of_list.points)] += 1
        return parcel

    asks = {NAMES[place]: ASKS[NAMES[place]] for place in asking}
    status, found = trained(tmp_path, asks, note, IN_RING[:parties])
    assert (status.state, status.error) == ("finished", "")
    assert sorted(found[0]) == COMMON
    assert all(each == found[0] for each in found)
    expected = {(NAMES[here], NAMES[there], turn.stage) for turn in turns(parties) for here, there in turn.routes}
    assert lists == {(sender, to, stage) for sender, to, stage in expected if sender != to}
    own = {length: len(asking) for length in range(1, parties + 1)}
    assert {length: count for length, count in sums.items() if length} == (own if asking else {})


def _exchange(parcel: Parcel) -> None:
    """The signs are exchanged with the points: the list is merely in another order."""
    ids = parcel.alignment.blinded_ids
    signs = [ids.signs[0] >> 7 & 1, ids.signs[0] >> 6 & 1]
    ids.points = ids.points[32:64] + ids.points[:32] + ids.points[64:]
    ids.signs = bytes([ids.signs[0] & 63 | signs[1] << 7 | signs[0] << 6]) + ids.signs[1:]


def _turn(parcel: Parcel) -> None:
    ids = parcel.alignment.blinded_ids
    ids.signs = bytes([ids.signs[0] ^ 128]) + ids.signs[1:]


def _replace(parcel: Parcel, place: int) -> None:
    parcel.alignment.sum_of_list.points[place] = bindings.crypto_scalarmult_ed25519_base_noclamp(bytes([9]) + bytes(31))


def _spoil(parcel: Parcel) -> None:
    proof = parcel.alignment.sum_of_list.proofs[-1]
    proof.challenge = bytes([proof.challenge[0] ^ 1]) + proof.challenge[1:]


def _clear(parcel: Parcel) -> None:
    del parcel.alignment.sum_of_list.points[:]


#: The last pass of a ring of three, in which lists return to their owners.
LAST = [turn.stage for turn in turns(3) if turn.step == "pass_ids"][-1]
RING_FAULTS: dict[str, tuple[str, Callable[[Parcel], None]]] = {
    "two common ids exchanged": ("did not come back raised by one exponent of each party", _exchange),
    "a sign turned": ("did not come back raised by one exponent of each party", _turn),
    "another sum": ("did not come back from pharmacy", partial(_replace, place=0)),
    "another raised sum": ("lab did not prove to clinic that it raised the sum", partial(_replace, place=1)),
    "a changed proof": ("pharmacy did not prove to clinic", _spoil),
    "no point at all": ("the sum of the identifiers of clinic did not come back from pharmacy", _clear),
}


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("fault", RING_FAULTS)
def test_what_the_last_party_of_a_ring_changes_is_told(fault: str, tmp_path: Path) -> None:
    """By the owner that asks. A list in another order has all common points, and is not detected without a proof."""
    expected, spoil = RING_FAULTS[fault]
    kind = "blinded_ids" if "raised by one" in expected else "sum_of_list"

    def tamper(_sender: str, to: str, parcel: Parcel) -> Parcel:
        if to == FIRST and name_of(parcel) == kind and parcel.stage == (LAST if kind == "blinded_ids" else 2):
            spoil(parcel)
        return parcel

    status, found = trained(tmp_path, {FIRST: ASKS[FIRST]}, tamper, [COMMON] * 3)
    assert (status.state, found) == ("failed", [])
    assert expected in status.error


def test_a_reordered_list_of_a_ring_without_a_proof(tmp_path: Path) -> None:
    """The job goes on, and one party takes records for others: what a proof prevents."""

    def tamper(_sender: str, to: str, parcel: Parcel) -> Parcel:
        if to == FIRST and name_of(parcel) == "blinded_ids" and parcel.stage == LAST:
            points = parcel.alignment.blinded_ids.points
            parcel.alignment.blinded_ids.points = points[32:64] + points[:32] + points[64:]
        return parcel

    status, found = trained(tmp_path, {}, tamper, [COMMON] * 3)
    assert (status.state, status.error) == ("finished", "")
    assert found[1] == found[2] != found[0]
    assert sorted(found[0]) == COMMON


@pytest.mark.parametrize("proven", [False, True])
def test_points_that_are_sent_back_in_a_ring(proven: bool, tmp_path: Path) -> None:
    """A party that returns the result of all as another's list calls nothing common, with a proof or without.

    One-time exponents see to that: the owner takes its own off a list that never had it.
    """
    common: list[bytes] = []

    def tamper(sender: str, to: str, parcel: Parcel) -> Parcel:
        if name_of(parcel) == "blinded_ids" and sender == NAMES[2]:
            if parcel.stage == _RESULT:
                common.append(parcel.alignment.blinded_ids.points)
            if parcel.stage == LAST and to == FIRST:
                own = len(parcel.alignment.blinded_ids.points)
                parcel.alignment.blinded_ids.points = (common[0] * 9)[:own]
        return parcel

    status, found = trained(tmp_path, ASKS if proven else {}, tamper, [COMMON] * 3)
    assert (status.state, found) == ("failed", [])
    told = "did not come back raised by one exponent" if proven else "does not hold all of the common identifiers"
    assert told in status.error


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("common", [True, False])
@pytest.mark.parametrize("fault", ["another point", "a point less"])
def test_an_error_of_a_ring_does_not_depend_on_what_is_common(fault: str, common: bool, tmp_path: Path) -> None:
    """Nothing has been compared then: it is the same if the changed point is of a common record and if it is not."""

    def tamper(_sender: str, to: str, parcel: Parcel) -> Parcel:
        if to == FIRST and name_of(parcel) == "blinded_ids" and parcel.stage == LAST:
            points = parcel.alignment.blinded_ids.points
            if fault == "a point less":
                ids = parcel.alignment.blinded_ids
                ids.points, ids.signs = ids.points[:-32], ids.signs[: (len(ids.points) // 32 + 6) // 8]
            else:
                parcel.alignment.blinded_ids.points = _of_another_exponent(points)
        return parcel

    rare = [f"{number}" for number in range(40)]
    ids = [COMMON, COMMON, COMMON] if common else [[*COMMON[:1], *rare], COMMON, COMMON]
    status, found = trained(tmp_path, {FIRST: ASKS[FIRST]}, tamper, ids)
    assert (status.state, found) == ("failed", [])
    if fault == "a point less":
        assert f"came back: {OTHER} or {NAMES[2]} has changed them" in status.error
    else:
        assert f"in their order: {OTHER} or {NAMES[2]} has changed them" in status.error


#: The pass in which the last party of a ring of three sends the common points to all.
_RESULT = next(turn.stage for turn in reversed(turns(3)) if turn.step == "pass_ids" and (2, 2) in turn.routes)


class LeavingItselfOut(Alignment):
    """A combiner that calls common what all others hold."""

    @step()
    async def combine_ids(self) -> None:
        """Without the own list, the one that came around."""
        mine = next(points for points in self._held if len(points) == len(self._ids))
        others = [points for points in self._held if points is not mine]
        joint = self._lists.empty()
        await self._lists.common(*others, kept=lambda points, _: joint.append(points))
        self._hold(joint)
        await self._refresh(joint)

    @step()
    async def match_ids(self) -> None:
        """The common points are the own first records."""
        assert self._common is not None
        points = np.sort(np.frombuffer(self._common.take(0, len(self._common)), dtype="S32"))
        self._matched, self._digest = [np.arange(len(points))], hashlib.sha256(points.tobytes()).digest()


def test_a_combiner_that_leaves_itself_out_is_not_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though all others ask for proofs: what a ring's first steps leave open."""

    def made(context: Any, *args: Any, **named: Any) -> Alignment:
        return (LeavingItselfOut if context.party == FIRST else Alignment)(context, *args, **named)

    monkeypatch.setattr(label_holder_job, "alignment_of", made)
    shared = [f"patient {number}" for number in range(40)]
    ids = [[f"nobody {number}" for number in range(50)], [*shared, "a"], [*shared, "b"]]
    status, found = trained(tmp_path, {name: ASKS[name] for name in NAMES[1:3]}, ids=ids)
    assert (status.state, status.error) == ("finished", "")
    assert sorted(found[1]) == sorted(shared)
    assert found[1] == found[2]
