"""Proofs of keys in jobs: whoever receives a key checks its proof first, and names the party whose proof is wrong."""

from __future__ import annotations

import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.forged_proofs import Factored, last_prime, prime
from tests.pivodl.federations import federation_of, job_of
from tests.pivodl.jobs import SMALL, SPREAD
from tests.prepared import FEW_ROUNDS
from tests.replay import HERE, JOB
from tests.simulator import Federation, run
from tests.worlds import PARTIES, spec
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.errors import Malformed
from treetap.party.pivodl import participant
from treetap.party.setup import steps
from treetap.party.setup.steps import check_key_proof, make_proof
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams, ForestParams
from treetap.trees.slots import Slots
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import exchange_pb2, jobs_pb2, setup_pb2
from treetap.workers.engines import Engine

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
FIRST, B, C = PARTIES
DRAW = random.Random(4)


def _context(**changes: Any) -> Any:
    own = {"party": "bank", "digest": bytes(32), "attempt": 1, "engine": Engine()}
    return SimpleNamespace(**own | changes)


@pytest.mark.real_time
async def test_a_proof_is_for_one_attempt_at_one_job_of_one_party() -> None:
    """It is made in the worker that has the key; another digest, attempt or prover is not what it is bound to."""
    secret = SecretKey.generate(512, allow_breakable=True)

    bank = _context()
    holder = KeyHolder(bank.engine, secret, Slots((60,)), "standard")
    await holder.start()
    proof = await make_proof(bank, holder.prove)
    shop = {"party": "shop", "engine": Engine()}
    await check_key_proof(_context(**shop), "bank", secret.public, proof)
    assert await make_proof(bank, holder.prove) != proof
    others: list[tuple[dict[str, Any], str]] = [
        ({"digest": b"\1" + bytes(31)}, "bank"),
        ({"attempt": 2}, "bank"),
        ({}, "telco"),
    ]
    for changes, prover in others:
        with pytest.raises(Malformed, match=f"{prover} sent a Paillier modulus that its proof does not fit: .*shop"):
            await check_key_proof(_context(**shop, **changes), prover, secret.public, proof)


def _proof(parcel: exchange_pb2.PeerMessage) -> Any:
    """The content with a key."""
    return content_of(parcel, name_of(parcel))


def _of_no_bytes(content: Any, _: dict[str, Any]) -> None:
    content.proof = b""


def _altered(content: Any, _: dict[str, Any]) -> None:
    content.proof = content.proof[:-1] + bytes([content.proof[-1] ^ 1])


def _of_another_job(content: Any, seen: dict[str, Any]) -> None:
    content.modulus, content.proof = seen["before"].modulus, seen["before"].proof


def _of_another_party(content: Any, seen: dict[str, Any]) -> None:
    content.modulus, content.proof = seen[C].modulus, seen[C].proof


ALTERED = (_of_no_bytes, _altered, _of_another_job)


def _boosting(folder: Path) -> tuple[Federation, setup_pb2.JobSpec]:
    return Federation(folder, HERE.tables), spec(BoostingParams(n_estimators=1, max_depth=2))


def _forest(folder: Path) -> tuple[Federation, setup_pb2.JobSpec]:
    return Federation(folder, HERE.tables), spec(ForestParams(n_estimators=1, max_depth=1))


def _pivodl(folder: Path) -> tuple[Federation, setup_pb2.JobSpec]:
    job = job_of(SPREAD, SMALL)
    return federation_of(folder, SPREAD, job), job


CASES = [(begin, alter) for begin in (_boosting, _pivodl, _forest) for alter in ALTERED]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("begin", "alter"), [*CASES[:6], (_pivodl, _of_another_party), *CASES[6:]])
async def test_no_training_uses_a_key_without_its_proof(begin: Any, alter: Any, tmp_path: Path) -> None:
    """The receiver names the sender; nothing encrypted has been sent, and on an honest line the job ends well."""
    federation, job = begin(tmp_path)
    seen: dict[str, Any] = {}
    kinds = set[str]()
    sender = FIRST if begin is not _pivodl else B

    def keep(by: str, _: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) in ("public_key", "party_keys"):
            seen["before" if by == sender else by] = _proof(parcel)
        return parcel

    def tamper(by: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        kinds.add(name_of(parcel))
        if by == sender and name_of(parcel) in ("public_key", "party_keys"):
            alter(_proof(parcel), seen)
        return parcel

    federation.tamper = keep
    assert (await federation.train(job, "before")).state == "finished"
    federation.tamper = tamper
    status = await federation.train(job, "lie")
    assert status.state in ("failed", "interrupted")
    assert f"{sender} sent a Paillier modulus that its proof does not fit" in status.error
    assert "has not used the key. Compare the releases of treetap at both" in status.error
    assert not kinds & {"gradients", "party_nonce", "candidate_sums"}
    federation.tamper = None
    assert (await federation.train(job, "honest")).state == "finished"


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("alter", ALTERED[1:])
async def test_no_prediction_uses_a_key_without_its_proof(alter: Any, tmp_path: Path) -> None:
    """Every member of the chain checks the key of this prediction: one of another prediction is refused."""
    federation, seen = Federation(tmp_path, HERE.tables), dict[str, Any]()
    await federation.train(JOB)

    def tamper(_: str, __: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) == "public_key" and "before" in seen:
            alter(_proof(parcel), seen)
        elif name_of(parcel) == "public_key":
            seen["kept"] = _proof(parcel)
        return parcel

    federation.tamper = tamper
    assert (await _predicted(federation, "p")).state == "finished"
    seen["before"] = seen["kept"]
    status = await _predicted(federation, "q")
    assert re.search(f"{FIRST} sent a Paillier modulus that its proof does not fit", status.error), status.error


async def _predicted(federation: Federation, name: str) -> jobs_pb2.JobStatus:
    return await federation.predict(predict_request("eini", job=name, model="job"))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("begin", [_boosting, _pivodl])
def test_a_lying_modulus_is_used_only_where_nobody_checks(
    begin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key with p | q − 1 and the best proof of it: refused by name; without the check the job ends as any other."""
    liar = FIRST if begin is _boosting else B
    honest = {module: module.make_key for module in (steps, participant)}

    def lying(make_key: Any) -> Any:
        async def made(context: Any, key: Any) -> Any:
            if context.party != liar:
                return await make_key(context, key)
            p = prime(DRAW, 40)
            q = last_prime(DRAW, key.bits, p, beside=p)
            primes.append((p, q))
            return SecretKey(p, q, allow_breakable=True)

        return made

    primes: list[tuple[int, int]] = []
    honestly = SecretKey.prove

    def prove(secret: SecretKey, bound_to: bytes) -> bytes:
        factors = next((pair for pair in primes if pair[0] * pair[1] == secret.public.n), None)
        return Factored.of(*factors).forged(DRAW, bound_to, FEW_ROUNDS)[0] if factors else honestly(secret, bound_to)

    monkeypatch.setattr(SecretKey, "prove", prove)
    for module, make_key in honest.items():
        monkeypatch.setattr(module, "make_key", lying(make_key))
    monkeypatch.setattr("treetap.party.setup.steps.make_key", steps.make_key)

    async def main() -> None:
        federation, job = begin(tmp_path)
        job.key_bits = 512
        status = await federation.train(job, "checked")
        assert f"{liar} sent a Paillier modulus that its proof does not fit: an n-th root is none" in status.error
        with monkeypatch.context() as unchecked:
            for module in (steps, participant):
                unchecked.setattr(module, "check_key_proof", _no_check)
            status = await federation.train(job, "unchecked")
        assert (status.state, status.error) == ("finished", "")

    run(main())
    assert len(primes) == 2


async def _no_check(*_: Any) -> None:
    """Take any key."""
