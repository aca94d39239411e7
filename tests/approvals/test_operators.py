"""An operator's signature of a job: whose it is, of what, since when; policies that name operators."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.approvals.people import certify
from tests.certificates import namesake
from tests.replay import JOB
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.certs.requests import revoke
from treetap.errors import Refused
from treetap.party.approvals.openings import Operator, operator_of
from treetap.party.policy import Policy
from treetap.protocols.agreement import job_digest, statement
from treetap.wire import signatures
from treetap.wire.certificates import fingerprint
from treetap.wire.ports import Role
from treetap.wire.signatures import signed
from treetap.wire.tls import Insecure, TlsFiles
from treetap.wire.v2 import setup_pb2, types_pb2

PREPARE = setup_pb2.Prepare(spec=JOB, submission="7")
DIGEST = job_digest("job", PREPARE)
NANOS_A_DAY = 86_400 * 10**9


class Keys(NamedTuple):
    """The files of a party and of operators, and the folder of their authority."""

    folder: Path
    party: TlsFiles
    operator: TlsFiles


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    files = certify(tmp_path)
    return Keys(tmp_path, files["feature-b"], files["operator"])


def _signed(files: TlsFiles, digest: bytes = DIGEST, nanos: int | None = None) -> types_pb2.Signed:
    return signed(files, statement(digest), "job", nanos or time.time_ns())


def _operator(
    keys: Keys, made: types_pb2.Signed | None, operators: tuple[str, ...] = (), *, new: bool = True
) -> Operator:
    opening = setup_pb2.Prepare(spec=JOB, submission="7", signed=made)
    assert job_digest("job", opening) == DIGEST
    return operator_of(
        "feature-b", "job", opening, DIGEST, keys.party, Policy(people={"operators": list(operators)}), new=new
    )


def test_a_signature_counts_and_names_its_operator(keys: Keys) -> None:
    """With the fingerprint of its certificate; a policy may name it."""
    certificate, _ = keys.operator.pair()
    assert _operator(keys, _signed(keys.operator)) == Operator("operator", fingerprint(certificate))
    assert _operator(keys, _signed(keys.operator), ("operator",)).name == "operator"
    assert _operator(keys, None) == Operator()


def test_operators_of_a_policy_must_have_signed(keys: Keys) -> None:
    """None, another, and in plain text nobody."""
    with pytest.raises(Refused, match=r"in job job, which no operator has signed: .* operators = \[\"other\"\]"):
        _operator(keys, None, ("other",))
    with pytest.raises(
        Refused, match=r"in job job, which operator has signed: .*; if it should, name 'operator' there"
    ):
        _operator(keys, _signed(keys.operator), ("other",))
    plain, policy = Insecure("feature-b"), Policy(people={"operators": ["operator"]})
    with pytest.raises(Refused, match="which no operator has signed"):
        operator_of("feature-b", "job", PREPARE, DIGEST, plain, policy, new=True)
    opening = setup_pb2.Prepare(spec=JOB, submission="7", signed=_signed(keys.operator))
    assert operator_of("feature-b", "job", opening, DIGEST, plain, Policy(), new=True) == Operator()


def test_what_is_no_operators_signature_of_the_job_is_refused(keys: Keys, tmp_path: Path) -> None:
    """Of another job, another time, another role, another authority; torn, empty, or of a time to come."""
    good = _signed(keys.operator)
    create_authority(tmp_path / "foreign")
    foreign = issue(tmp_path / "foreign", "operator", Role.OPERATOR)
    retimed = types_pb2.Signed(certificate=good.certificate, signature=good.signature, unix_nanos=good.unix_nanos + 1)
    cases = {
        "is of something else, or was changed": [_signed(keys.operator, bytes(32)), retimed],
        "its certificate cannot be read": [types_pb2.Signed(), types_pb2.Signed(certificate=b"x", signature=b"y")],
        "is that of party 'operator', not of an operator": [
            _signed(namesake(tmp_path / "role", "operator", Role.PARTY, keys.folder))
        ],
        "was not issued by the given authority": [_signed(foreign)],
        "is of a time to come": [_signed(keys.operator, nanos=time.time_ns() + NANOS_A_DAY)],
        "its certificate was not valid": [_signed(keys.operator, nanos=time.time_ns() - 9 * NANOS_A_DAY)],
        "is of something else, or was changed ": [
            types_pb2.Signed(certificate=good.certificate, signature=good.signature[:-1], unix_nanos=good.unix_nanos)
        ],
    }
    for says, made in cases.items():
        for one in made:
            with pytest.raises(Refused, match=f"whose operator's signature does not count: .*{says.strip()}"):
                _operator(keys, one)


class Later(datetime):
    """A clock two seconds ahead: lists of revoked certificates have whole seconds."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Later:
        return super().now(tz) + timedelta(seconds=2)


def test_a_revoked_operator_signs_nothing_new(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever time it writes; a job that is known already and was signed before goes on."""
    before = _signed(keys.operator, nanos=time.time_ns() - 60 * 10**9)
    revoked, _, _ = revoke(keys.folder, ["operator"])
    listed = keys._replace(party=replace(keys.party, revoked=revoked))
    monkeypatch.setattr(signatures, "datetime", Later)
    with pytest.raises(Refused, match="its certificate was revoked on"):
        _operator(listed, before)
    assert _operator(listed, before, new=False).name == "operator"
    with pytest.raises(Refused, match="its certificate was revoked on"):
        _operator(listed, _signed(keys.operator, nanos=time.time_ns() + 2 * 10**9), new=False)
