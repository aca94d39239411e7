"""Proofs that a returned list is the own one, raised by one exponent: what they refuse, what comes about without."""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nacl import bindings

from party.alignment import lists as work
from party.alignment.steps import Alignment
from party.growth import label_holder_job
from party.runtime.step_order import step
from tests.alignment.previews import asked
from tests.alignment.test_protocol import NAMES, PARAMS, aligned, job, tables
from tests.native.forms import HERE
from tests.simulator import Federation, Message, run
from treetap.native import arithmetic
from treetap.protocols.prediction import predict_request
from treetap.psi.kernels import group
from treetap.psi.lists import PointList
from treetap.wire.frame import name_of
from treetap.wire.v2 import alignment_pb2, control_pb2, exchange_pb2, jobs_pb2

pytestmark = [
    pytest.mark.usefixtures("same_arithmetic_after"),
    pytest.mark.skipif(not HERE, reason="the kernels were not compiled"),
]
FIRST, OTHER = NAMES[:2]
#: The turn in which lists are returned.
RETURN = 3
ASKS: dict[str, dict[str, Any]] = {name: {"alignment_proof": True} for name in NAMES}
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
    found: list[list[str]] = []

    async def main() -> jobs_pb2.JobStatus:
        federation = Federation(folder, tables(ids), policies=policies)
        federation.tamper = tamper

        def look(message: Message) -> None:
            if message.word == "bin" and not found:
                found.extend(aligned(federation))

        federation.hook = look
        status = await federation.train(job(len(ids), PARAMS))
        await federation.close()
        return status

    return run(main()), found


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
        proofs[sender] += name_of(parcel) == "list_proof"
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
        assert self._proofs is not None
        await self._proofs.announce()
        self._shuffle, made = np.arange(len(self._ids)), self._lists.empty()
        made.append(group().hash_points(secrets.token_bytes(64 * len(self._ids))))
        self._hold(made)

    @step()
    async def pass_ids(self, request: control_pb2.StepRequest) -> None:
        """Take the points that the other has raised, and return them; with the proof that it can make of them."""
        if request.stage != RETURN:
            await super().pass_ids(request)
            self.theirs = self._held[0]
            return
        assert self._proofs is not None
        (answer,) = await self._lists.take_all([1], RETURN)
        answer.signs = PointList(self._context.scratch.file(), width=1)
        answer.signs.append(bytes(len(answer)))
        await self._lists.send(OTHER, answer, RETURN)
        if self._proofs.asked:
            theirs = await self._lists.raised(self.theirs, self._exponent, rooted=True)
            theirs.close()
            await self._proofs.send(await self._proofs.prove(self.theirs, answer), RETURN)
        self.answer = answer

    @step()
    async def raise_ids(self) -> None:
        """Raise nothing."""

    @step()
    async def match_ids(self) -> None:
        """All are common."""
        points = np.sort(np.frombuffer(self.answer.take(0, len(self.answer)), dtype="S32"))
        self._found = np.arange(len(points)), hashlib.sha256(points.tobytes()).digest()


@pytest.mark.parametrize("proven", [False, True])
def test_points_that_are_sent_back(proven: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a proof all records of a party are common to one that holds none of them; with a proof the job ends."""

    def made(context: Any, *args: Any, **named: Any) -> Alignment:
        return (Reflecting if context.party == FIRST else Alignment)(context, *args, **named)

    monkeypatch.setattr(label_holder_job, "Alignment", made)
    own = [f"patient {number}" for number in range(40)]
    ids = [[f"nobody {number}" for number in range(40)], own]
    status, found = trained(tmp_path, ASKS if proven else {}, ids=ids)
    if not proven:
        assert status.state == "finished", status.error
        assert sorted(found[1]) == sorted(own)
        return
    assert (status.state, found) == ("failed", [])
    assert f"{FIRST} did not return the blinded identifiers of {OTHER} raised by one exponent" in status.error
    assert "settle that with its operator" in status.error


def _of_another_exponent(points: bytes) -> bytes:
    return group().raise_points((2**254 + 8 * 12345).to_bytes(32, "little"), points[:32]) + points[32:]


def _spoilt(parcel: Parcel, what: str) -> None:
    """Change a message of the return, or of the key, in one way."""
    ids, proof = parcel.alignment.blinded_ids, parcel.alignment.list_proof
    if name_of(parcel) == "alignment_key":
        key = parcel.alignment.alignment_key
        if what == "another key":
            key.key = bindings.crypto_scalarmult_ed25519_base_noclamp((5).to_bytes(32, "little"))
        if what == "no key":
            key.key = b""
        if what == "a key of low order":
            key.key = bytes(32)
        return
    if name_of(parcel) == "list_proof":
        if what == "another challenge":
            proof.challenge = bytes([proof.challenge[0] ^ 1]) + proof.challenge[1:]
        if what == "no proof":
            parcel.alignment.list_proof.CopyFrom(alignment_pb2.ListProof())
        if what == "a response above the order":
            proof.response = b"\xff" * 32
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
    "two points exchanged": "did not return the blinded identifiers of clinic raised by one exponent",
    "all points reordered": "did not return",
    "one point of another exponent": "did not return",
    "a sign turned": "did not return",
    "no signs": "lab sent 0 signs for 41 identifiers: a proof needs one each",
    "another challenge": "did not return",
    "no proof": "did not return",
    "a response above the order": "did not return",
    "another key": "did not return",
    "no key": 'which lab cannot give: they need compiled kernels; set arithmetic = "native" in the file of lab',
    "a key of low order": "the key that lab sent clinic before its identifiers is no point of the group",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_party_changes_in_its_answer_is_told(fault: str, tmp_path: Path) -> None:
    """By the party that asks, which compares no list then."""

    def tamper(sender: str, _to: str, parcel: Parcel) -> Parcel:
        if sender == OTHER and (parcel.stage == RETURN or name_of(parcel) == "alignment_key"):
            _spoilt(parcel, fault)
        return parcel

    status, found = trained(tmp_path, {FIRST: ASKS[FIRST]}, tamper)
    assert (status.state, found) == ("failed", [])
    assert FAULTS[fault] in status.error


def test_a_key_that_comes_back_is_refused(tmp_path: Path) -> None:
    """Who sends a party's key, lists and proofs back to it would need no exponent of its own."""
    keys: list[bytes] = []

    def tamper(_sender: str, _to: str, parcel: Parcel) -> Parcel:
        if name_of(parcel) == "alignment_key":
            keys.append(parcel.alignment.alignment_key.key)
            parcel.alignment.alignment_key.key = keys[0]
        return parcel

    status, found = trained(tmp_path, ASKS, tamper)
    assert (status.state, found) == ("failed", [])
    assert "before its identifiers is this party's own" in status.error


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


@pytest.mark.parametrize(("parties", "method"), [(3, "psi"), (2, "sorted-ids")])
def test_an_alignment_without_proofs_is_refused(parties: int, method: str, tmp_path: Path) -> None:
    """A ring and digests of ids have none: a policy that asks for one names that."""

    async def main() -> jobs_pb2.JobStatus:
        federation = Federation(tmp_path, tables([COMMON] * parties), policies={OTHER: ASKS[OTHER]})
        asked = job(parties)
        asked.alignment = method
        status = await federation.train(asked)
        await federation.close()
        return status

    status = run(main())
    assert status.state == "failed"
    assert f"{OTHER} takes no part in this alignment" in status.error
    assert ("more than two parties" if parties > 2 else "by sorted-ids") in status.error


def test_previews(tmp_path: Path) -> None:
    """Of rows, which are aligned as in a job, with proofs; of a count they are refused."""
    rows = {name: {"preview": "records", "alignment_proof": True} for name in NAMES}
    status = asked(tmp_path / "rows", IDS, rows, answer="records")
    assert (status.state, status.common.records) == ("finished", len(COMMON))
    status = asked(tmp_path / "count", IDS, rows, answer="count")
    assert status.state == "failed"
    assert "there is no proof, as it is by a count" in status.error


def test_predictions_have_proofs_too(tmp_path: Path) -> None:
    """Each alignment has its own."""
    proofs: Counter[str] = Counter()

    async def main() -> None:
        federation = Federation(tmp_path, tables(IDS), policies=ASKS)

        def note(sender: str, _to: str, parcel: Parcel) -> Parcel:
            proofs[parcel.job] += name_of(parcel) == "list_proof"
            return parcel

        federation.tamper = note
        assert (await federation.train(job(2))).state == "finished"
        status = await federation.predict(predict_request(model="job"))
        assert (status.state, status.error) == ("finished", "")
        await federation.close()

    run(main())
    assert sorted(proofs.values()) == [2, 2]
