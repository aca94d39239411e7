"""What operators are shown of jobs that wait, and what they decide.

- An operator's signature of a job: whose it is, of what, since when; policies that name operators.
- What a party's people are shown of it: pages of the ledger, models, certificates, and how far a job has come.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.approvals.people import certify, configured
from tests.certificates import certified, namesake
from tests.replay import JOB
from tests.simulator import in_place, run
from treetap.errors import DataError, Refused
from treetap.ops.certs.requests import revoke
from treetap.party.approvals.ledger import Approvals
from treetap.party.approvals.openings import operator_of
from treetap.party.approvals.overview import LONGEST, PAGES, ROWS, Overview
from treetap.party.config import PartyConfig
from treetap.party.policy import Policy
from treetap.party.runtime.attempts import Pace
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap.party.runtime.metrics import PartyMetrics
from treetap.protocols.agreement import job_digest, statement
from treetap.wire import signatures
from treetap.wire.certificates import fingerprint
from treetap.wire.ports import Role
from treetap.wire.signatures import signed
from treetap.wire.tls import Insecure, TlsFiles
from treetap.wire.v2 import overview_pb2, setup_pb2, types_pb2

PREPARE = setup_pb2.Prepare(spec=JOB, submission="7")
DIGEST = job_digest("job", PREPARE)
NANOS_A_DAY = 86_400 * 10**9
BANK, ANN = "bank", "ann"


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
) -> tuple[str, str]:
    opening = setup_pb2.Prepare(spec=JOB, submission="7", signed=made)
    assert job_digest("job", opening) == DIGEST
    return operator_of(
        "feature-b", "job", opening, DIGEST, keys.party, Policy(people={"operators": list(operators)}), new=new
    )


def test_a_signature_counts_and_names_its_operator(keys: Keys) -> None:
    """With the fingerprint of its certificate; a policy may name it."""
    certificate, _ = keys.operator.pair()
    assert _operator(keys, _signed(keys.operator)) == ("operator", fingerprint(certificate))
    assert _operator(keys, _signed(keys.operator), ("operator",))[0] == "operator"
    assert _operator(keys, None) == ("", "")


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
    assert operator_of("feature-b", "job", opening, DIGEST, plain, Policy(), new=True) == ("", "")


def test_what_is_no_operators_signature_of_the_job_is_refused(keys: Keys, tmp_path: Path) -> None:
    """Of another job, another time, another role, another authority; torn, empty, or of a time to come."""
    good = _signed(keys.operator)
    foreign = certified(tmp_path / "foreign", "operator")["operator"]
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
    assert _operator(listed, before, new=False)[0] == "operator"
    with pytest.raises(Refused, match="its certificate was revoked on"):
        _operator(listed, _signed(keys.operator, nanos=time.time_ns() + 2 * 10**9), new=False)


def _overview(folder: Path, metrics: PartyMetrics | None = None, **more: object) -> Overview:
    config = PartyConfig(name=BANK, state=folder / "state", insecure=True).model_copy(update=more)
    config = config.under(
        Policy(people={"approvers": [ANN], "coordinators": ["c"], "label_holders": ["a"]}, labels={"max_leakage": 0.5})
    )
    approvals = Approvals(BANK, folder / "state" / "approvals", Insecure(BANK))
    return Overview(lambda: config, approvals, {}, metrics or PartyMetrics(BANK), in_place, lambda: 5.0)


def _shown(overview: Overview, view: str, page: int = 0) -> overview_pb2.View:
    return run(overview.show(ANN, overview_pb2.AskedView(view=view, page=page)))


def test_the_ledger_has_pages_the_newest_first(tmp_path: Path) -> None:
    """Of 50 charges each; what a preview told is no charge, and a page behind the last is empty."""
    ledger = ledger_of(tmp_path / "state")
    for number in range(ROWS + 3):
        occasion = Occasion("loans", ("a", "b"), "c", f"job-{number}", 1)
        ledger.enter(Charge(Kind.RECORDS if number % 2 else Kind.TRAINING, occasion, 8 + number, {}, float(number)))
    ledger.enter(Charge(Kind.ANSWER, Occasion("loans", ("a",), "c", "told", 1), 0, {"of": 0, "told": "12"}))
    overview = _overview(tmp_path)
    first, last = _shown(overview, "ledger"), _shown(overview, "ledger", 1)
    assert (len(first.ledger), first.more, first.at) == (ROWS, True, 5.0)
    assert [line.job for line in last.ledger] == ["job-2", "job-1", "job-0"]
    assert not last.more
    line = first.ledger[0]
    assert (line.job, line.kind, line.amount, list(line.partners)) == ("job-52", "training", 60.0, ["a", "b", "c"])
    assert len(_shown(overview, "ledger", 2**32 - 1).ledger) == 0
    assert PAGES * ROWS < 2**31
    with ledger.path.open("r+b") as file:
        file.write(b"?")
    with pytest.raises(DataError, match=r"ledger.jsonl"):
        _shown(overview, "ledger")


def test_models_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Beside those that can; folders without a manifest are none, and a long text is cut."""
    for name, content in (
        ("good", json.dumps({"protocol": "boosting", "role": "feature_party", "trees": 3})),
        ("torn", '{"protocol": "boo'),
        ("odd", '{"protocol": "x", "role": "y", "trees": "many"}'),
        ("long", json.dumps({"protocol": "p" * 10_000, "role": "label_holder", "trees": -1})),
        ("less", json.dumps({})),
        ("huge", '{"protocol": "x", "role": "y", "trees": 1e300}'),
        ("endless", '{"protocol": "x", "role": "y", "trees": Infinity}'),
    ):
        (tmp_path / "state" / "models" / name).mkdir(parents=True)
        (tmp_path / "state" / "models" / name / "manifest.json").write_text(content)
    (tmp_path / "state" / "models" / "half").mkdir()
    shown = {model.model: model for model in _shown(_overview(tmp_path), "models").models}
    assert {name for name, model in shown.items() if model.fault} == {"torn", "odd", "less", "endless"}
    assert (shown["good"].protocol, shown["good"].role, shown["good"].trees) == ("boosting", "feature_party", 3)
    assert (shown["long"].protocol, shown["long"].trees) == ("p" * LONGEST, 0)
    assert shown["huge"].trees == 2**32 - 1


def test_certificates_are_shown_with_their_end(tmp_path: Path) -> None:
    """The party's own and its authority's; a file that is gone has its fault, and plain text has none."""
    files = certified(tmp_path / "ca", BANK)[BANK]
    overview = _overview(tmp_path, tls=configured(files), insecure=False)
    own, authority = _shown(overview, "certificates").certificates
    assert (own.what, own.subject, authority.what) == ("own", f"CN={BANK}", "authority")
    assert 0 < own.ends < authority.ends
    listed = configured(files).model_copy(update={"revoked": revoke(tmp_path / "ca", [BANK], days=9)[0]})
    *_, revoked = _shown(_overview(tmp_path, tls=listed, insecure=False), "certificates").certificates
    assert (revoked.what, revoked.subject, revoked.ends < own.ends) == ("revoked", "list of 1 revoked", True)
    files.certificate.unlink()
    own, _ = _shown(overview, "certificates").certificates
    assert own.fault == f"{files.certificate}: there is no such file"[:LONGEST]
    assert len(_shown(_overview(tmp_path), "certificates").certificates) == 0


def test_leakage_stands_beside_its_limit(tmp_path: Path) -> None:
    """Of a job under way, by partner: what its metrics say."""
    metrics = PartyMetrics(BANK)
    metrics.leakage_bound.labels("a").set(0.25)
    metrics.signature("a", 0.3, 0.1, 0.2)
    rows = {row.limit: row for row in _shown(_overview(tmp_path, metrics), "limits").limits}
    assert (rows["max_leakage"].of, rows["max_leakage"].spent, rows["max_leakage"].most) == ("labels, by a", 0.25, 0.5)
    assert rows["leakage"].spent == 0.2
    assert len(rows) == 2


def test_transcripts_are_shown_with_the_reports_beside_them(tmp_path: Path) -> None:
    """Sizes, and files of reports by their names alone."""
    folder = tmp_path / "state" / "transcripts" / "job"
    folder.mkdir(parents=True)
    (folder / "0.tap").write_bytes(b"x" * 70)
    (folder / "audit.html").write_bytes(b"y" * 7)
    (folder / "more").mkdir()
    (folder / os.fsdecode(b"pr\xfcfung.html")).write_bytes(b"z")  # not UTF-8
    (kept,) = _shown(_overview(tmp_path), "transcripts").transcripts
    assert (kept.job, kept.bytes, list(kept.reports)) == ("job", 78, ["audit.html", r"pr\udcfcfung.html"])


async def test_time_left_follows_from_the_rounds_so_far() -> None:
    """Not known before a round was timed; set-up does not count, nor does a tree that takes long end before now."""
    pace = Pace()
    await asyncio.sleep(100)
    for number in range(3):
        pace.begins("grow", number)
        left = pace.seconds_left(10, asyncio.get_running_loop().time())
        assert left == (None if number == 0 else pytest.approx(4.0 * (10 - number)))
        await asyncio.sleep(4)
    now = asyncio.get_running_loop().time()
    assert pace.seconds_left(10, now) == pytest.approx(28.0)
    assert pace.seconds_left(10, now + 1000) == 0.0
    assert pace.seconds_left(0, now) is None
    assert (pace.done, pace.step) == (2, "grow")
