"""The ledger of approvals: what counts, what does not, and what a crash leaves."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.approvals.people import ANN, BEN, MANUAL, B, C
from treetap.errors import BadInput, Conflict, Overloaded, Pending, Refused, UnknownJob
from treetap.models import durable
from treetap.models.durable import read_document, write_document, write_whole
from treetap.party.approvals import ledger
from treetap.party.approvals.decisions import Asked, Verdict
from treetap.party.approvals.ledger import DAY_S, MOST_WAITING, SEED, Approvals
from treetap.party.policy import Policy
from treetap.wire.tls import Insecure, TlsFiles

NOW = 1_800_000_000.0
POLICY = Policy(**MANUAL)
DOCUMENT: dict[str, Any] = {
    "job": "job",
    "submission": "7",
    "protocol": "boosting",
    "parameters": {"n_estimators": 20, "max_depth": 4},
    "table": "loans",
    "aggregator": "label-holder",
    "feature_parties": [B],
    "key_bits": 2048,
    "obfuscation": "short-exponent",
    "alignment": "psi",
    "scheme": "paillier",
    "eval_table": "",
}
JOB = Asked("job", "train", "ab" * 32, "coordinator", document=DOCUMENT)
OTHER = replace(JOB, digest="cd" * 32, document={**DOCUMENT, "submission": "8"})
STANDING = """
name = "weekly"
until = 2027-12-31
count = 2
coordinator = "coordinator"
partners = ["label-holder"]
table = "loans"
[document]
protocol = "boosting"
aggregator = "label-holder"
"parameters.n_estimators" = { most = 20 }
"parameters.max_depth" = [3, 4]
"parameters.max_leaves" = { most = 8 }
explain_limit = { most = 100 }
"""


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Seconds since 1970 for approvals; signatures are verified as of a time at which certificates hold."""
    monkeypatch.setattr("treetap.wire.signatures.time_fault", lambda *_: None)
    monkeypatch.setattr("treetap.wire.signatures.time.time_ns", lambda: int((NOW + 1e9) * 1e9))
    return Clock()


@pytest.fixture
def again(tmp_path: Path, certificates: dict[str, TlsFiles], clock: Clock) -> Callable[[], Approvals]:
    """The approvals of a party that starts on its disk."""
    return lambda: Approvals(B, tmp_path, certificates[B], clock)


def _words() -> tuple[str, ...]:
    return ("You send sums.",)


def _waits(approvals: Approvals, job: Asked = JOB) -> None:
    with pytest.raises(Pending, match=f"^waiting for approval of {B}$"):
        approvals.admit(POLICY, job, _words)


def _admitted(approvals: Approvals, job: Asked = JOB) -> None:
    approvals.admit(POLICY, job, _words)


def test_an_approval_has_a_beginning_and_an_end(again: Callable[[], Approvals], clock: Clock) -> None:
    """It holds over restarts between the two, and counts as none outside."""
    approvals = again()
    _waits(approvals)
    decided = approvals.decide(ANN, "job", JOB.digest, days=2.0)
    assert decided.last is not None
    assert (decided.last.since, decided.last.until) == (NOW, NOW + 2 * DAY_S)
    _admitted(approvals)
    _admitted(again())
    for moment, state in ((NOW - 1, "expired"), (NOW + 2 * DAY_S, "expired"), (NOW + 2 * DAY_S - 1, "approved")):
        clock.now = moment
        (listed,) = again().listed()
        assert again().state(listed) == state
    clock.now = NOW + 2 * DAY_S
    _waits(again())
    again().decide(BEN, "job", JOB.digest, days=1.0)
    _admitted(again())


@pytest.mark.parametrize("days", [0.0, 0.5, -1.0, 367.0, float("nan"), float("inf")])
def test_days_out_of_range_are_refused(days: float, again: Callable[[], Approvals]) -> None:
    """A day at least, a year at most."""
    approvals = again()
    _waits(approvals)
    with pytest.raises(BadInput, match="an approval holds for 1 to 366 days"):
        approvals.decide(ANN, "job", JOB.digest, days=days)


def test_another_digest_is_another_job(again: Callable[[], Approvals]) -> None:
    """What was shown is what is decided."""
    approvals = again()
    _waits(approvals)
    with pytest.raises(Conflict, match=r"job job is not the one that was shown \(digest cdcdcdcdcdcd, here abab"):
        approvals.decide(ANN, "job", OTHER.digest, days=1.0)
    with pytest.raises(UnknownJob, match="was asked for no job 'none'"):
        approvals.decide(ANN, "none", JOB.digest, days=1.0)
    approvals.decide(ANN, "job", JOB.digest, days=1.0)
    _waits(approvals, OTHER)


def test_two_approvers_at_once(again: Callable[[], Approvals]) -> None:
    """The first approval stands; a refusal after it counts, and an approval after that."""
    approvals = again()
    _waits(approvals)
    first = approvals.decide(ANN, "job", JOB.digest, days=1.0)
    assert approvals.decide(BEN, "job", JOB.digest, days=5.0) == first
    approvals.decide(BEN, "job", JOB.digest, days=None, why="x" * 1000)
    with pytest.raises(BadInput, match=rf"{B} has refused job job: x{{400}} \(by {BEN}\)$"):
        _admitted(again())
    approvals.decide(ANN, "job", JOB.digest, days=1.0)
    _admitted(again())


def test_signed_jobs_are_kept_where_no_approval_is_asked(again: Callable[[], Approvals]) -> None:
    """A policy that asks for none any more lets a job in that waited; an unsigned job leaves no file."""
    free = Policy()
    again().admit(free, JOB, _words)
    assert again().listed() == []
    again().admit(free, replace(JOB, operator="operator", signed="c2ln"), _words)
    _waits(again(), OTHER)
    again().admit(free, OTHER, _words)
    approvals = again()
    assert [approvals.state(asked) for asked in approvals.listed()] == ["open", "open"]
    assert approvals.listed()[0].signed == "c2ln"
    _waits(approvals)


def test_a_refusal_counts_where_no_approval_is_asked(again: Callable[[], Approvals]) -> None:
    """What `treetap refuse` reports is what happens."""
    _waits(again())
    again().decide(ANN, "job", JOB.digest, days=None)
    with pytest.raises(BadInput, match=f"{B} has refused job job"):
        again().admit(Policy(), JOB, _words)


def test_an_approval_is_for_the_coordinator_that_was_shown(tmp_path: Path, again: Callable[[], Approvals]) -> None:
    """Another one is refused, whom an editor of the file cannot put in its place."""
    _waits(again())
    rogue = replace(JOB, coordinator="rogue")
    says = f"job job is coordinator's at {B}, not rogue's: another coordinator needs a new approval; submit a new job"
    for _ in range(2):
        with pytest.raises(Refused, match=says):
            _admitted(again(), rogue)
        again().decide(ANN, "job", JOB.digest, days=1.0)
    _forge(tmp_path, lambda plain: plain.update(coordinator="rogue"))
    _waits(again(), rogue)


@pytest.mark.parametrize("standing", [False, True])
def test_a_job_that_has_ended_does_not_open_again(standing: bool, again: Callable[[], Approvals]) -> None:
    """By its approval, or by a standing one that has let it in; another submission and an end of none are no matter."""
    if standing:
        again().stand(ANN, STANDING)
    else:
        _waits(again())
        again().decide(ANN, "job", JOB.digest, days=1.0)
    again().end("coordinator", "job", "none")
    _admitted(again())
    again().end("coordinator", "job", "7")
    with pytest.raises(BadInput, match=r"^job job has ended here; submit a new job"):
        _admitted(again())
    assert again().state(again().listed()[0]) == "ended"
    with pytest.raises(BadInput, match=r"has ended here; have its operator submit a new one"):
        again().decide(ANN, "job", JOB.digest, days=1.0)


# ---- countersignatures


def _forge(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a job's file as somebody with the disk and without the key would."""
    (path,) = folder.glob("[0-9a-f]*.json")
    plain = read_document(path, SEED)
    change(plain)
    write_document(path, plain, SEED)


@pytest.mark.parametrize("field", ["approver", "way", "since", "until", "job", "digest", "countersigned", "party"])
def test_a_changed_approval_counts_as_none(
    field: str, tmp_path: Path, again: Callable[[], Approvals], certificates: dict[str, TlsFiles], clock: Clock
) -> None:
    """Every field is signed, and by this party's own key: the job waits again."""
    approvals = again()
    _waits(approvals)
    approvals.decide(ANN, "job", JOB.digest, days=1.0)
    _admitted(again())

    def change(plain: dict[str, Any]) -> None:
        verdict = plain["verdicts"][0]
        if field in ("since", "until"):
            verdict[field] += -1.0 if field == "since" else 1.0
        elif field in ("job", "digest"):
            plain[field] = {"job": "job-2", "digest": OTHER.digest}[field]
        elif field == "countersigned":
            verdict[field] = ""
        elif field == "party":  # countersigned by another party's key
            other = Approvals(C, tmp_path / "other", certificates[C], clock)
            other._party = B
            made = other._decided(JOB, Verdict(**{**verdict, "countersigned": ""}))
            verdict["countersigned"] = made.verdicts[-1].countersigned
        else:
            verdict[field] = BEN if field == "approver" else "standing other"

    _forge(tmp_path, change)
    job = {"job": replace(JOB, job="job-2"), "digest": OTHER}.get(field, JOB)
    _waits(again(), job)


def test_in_plain_text_nothing_is_countersigned(tmp_path: Path, clock: Clock) -> None:
    """And no approval of such a time counts once there are certificates."""
    approvals = Approvals(B, tmp_path, Insecure(B), clock)
    _waits(approvals)
    decided = approvals.decide(ANN, "job", JOB.digest, days=1.0)
    assert decided.last is not None
    assert decided.last.countersigned == ""
    _admitted(approvals)


def test_jobs_that_wait_are_bounded(again: Callable[[], Approvals], monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator cannot fill the disk; the oldest of those that are decided is forgotten."""
    monkeypatch.setattr(ledger, "MOST_KEPT", MOST_WAITING + 1)
    approvals = again()
    jobs = [replace(JOB, digest=f"{number:064x}") for number in range(MOST_WAITING + 2)]
    for job in jobs[:MOST_WAITING]:
        _waits(approvals, job)
    with pytest.raises(Overloaded, match=f"{MOST_WAITING} jobs wait for approval already"):
        _admitted(approvals, jobs[-1])
    for job in jobs[:2]:
        approvals.decide(ANN, "job", job.digest, days=None)
    for job in jobs[MOST_WAITING:]:
        _waits(approvals, job)
    assert [asked.digest for asked in again().listed()] == [job.digest for job in jobs[1:]]
    approvals.withdraw("other", "job", "7")
    assert len(approvals.listed()) == MOST_WAITING + 1
    approvals.withdraw("coordinator", "job", "7")
    assert [asked.digest for asked in again().listed()] == [jobs[1].digest]


def test_a_job_that_has_waited_for_long_makes_room(again: Callable[[], Approvals], clock: Clock) -> None:
    """Only where the room is needed, and the oldest first."""
    approvals = again()
    jobs = [replace(JOB, digest=f"{number:064x}") for number in range(MOST_WAITING + 1)]
    for job in jobs[:-1]:
        _waits(approvals, job)
    clock.now = NOW + 30 * DAY_S - 1
    with pytest.raises(Overloaded):
        _admitted(approvals, jobs[-1])
    clock.now = NOW + 30 * DAY_S
    _waits(again(), jobs[-1])
    assert {asked.digest for asked in again().listed()} == {job.digest for job in jobs[1:]}


# ---- standing approvals


def _covered(**document: Any) -> Asked:
    return replace(JOB, digest=f"{len(document) + 1:064x}", document={**DOCUMENT, **document})


def test_a_standing_approval_lets_in_so_many_jobs(again: Callable[[], Approvals], clock: Clock) -> None:
    """Counted over restarts; the same job counts once; after its end, or once revoked, it lets in none."""
    approvals = again()
    standing = approvals.stand(ANN, STANDING)
    for _ in range(2):
        _admitted(again())
    _admitted(again(), OTHER)
    third = replace(JOB, digest="ef" * 32)
    _waits(again(), third)
    assert list(again().faults(third)) == ["standing approval weekly: it has let in 2 jobs, and no more"]
    (kept,) = again().standing()
    assert kept.used == (JOB.digest, OTHER.digest)
    assert [asked.last.way for asked in again().listed() if asked.last] == ["standing weekly"] * 2
    clock.now = standing.until - 1
    _admitted(again())
    clock.now = standing.until
    _waits(again())
    clock.now = NOW
    again().revoke(BEN, "weekly")
    _waits(again())


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"table": "others"}, "table: it is another one"),
        ({"feature_parties": [B, C]}, f"partners: {C}"),
        ({"aggregator": "other"}, "partners: other"),
        ({"aggregator": B, "feature_parties": ["label-holder"]}, "aggregator is beyond it"),
        ({"protocol": "forest"}, "protocol is beyond it"),
        ({"parameters": {"n_estimators": 21, "max_depth": 4}}, "parameters.n_estimators is beyond it"),
        ({"parameters": {"n_estimators": True, "max_depth": 4}}, "parameters.n_estimators is beyond it"),
        ({"parameters": {"n_estimators": 20, "max_depth": 5}}, "parameters.max_depth is beyond it"),
        ({"parameters": {"n_estimators": 20, "max_depth": 4, "max_leaves": 0}}, "parameters.max_leaves is beyond it"),
        ({"explain_limit": 0}, "explain_limit is beyond it"),
        (
            {"parameters": {"n_estimators": 20, "max_depth": 4, "subsample": 0.5}},
            "parameters.subsample is not its default, and not named",
        ),
        ({"key_bits": 1024}, "key_bits is not its default, and not named"),
        ({"eval_table": "more"}, "eval_table is not its default, and not named"),
        ({"base_model": "before"}, "base_model is not its default, and not named"),
        ({"later": 1}, "later is not its default, and not named"),
    ],
)
def test_one_field_beyond_a_standing_approval_waits(
    changed: dict[str, Any], fault: str, again: Callable[[], Approvals]
) -> None:
    """It says which; so do another kind and another coordinator, whatever the document says."""
    approvals = again()
    approvals.stand(ANN, STANDING)
    job = _covered(**changed)
    _waits(approvals, job)
    assert list(approvals.faults(job)) == [f"standing approval weekly: {fault}"]
    assert approvals.standing()[0].used == ()
    assert approvals.would_wait(POLICY, job)
    assert not approvals.would_wait(POLICY, JOB)
    _waits(approvals, replace(JOB, kind="align"))
    _waits(approvals, replace(JOB, digest="ef" * 32, coordinator="other"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = ", "is no TOML"),
        (STANDING.replace("2027", "2020"), "is over already"),
        (STANDING.replace("count = 2", "count = 0"), "count: "),
        (STANDING.replace("count", "counts"), "counts: "),
        (STANDING.replace('["label-holder"]', "[]"), "partners: "),
        (STANDING + "# " + "x" * 70_000, "at most 65536 bytes"),
    ],
)
def test_what_is_no_standing_approval_is_refused(text: str, says: str, again: Callable[[], Approvals]) -> None:
    """Nothing of it is kept."""
    approvals = again()
    with pytest.raises(BadInput, match=says):
        approvals.stand(ANN, text)
    assert again().standing() == []


@pytest.mark.parametrize("forged", [{"count": 3}, {"used": []}, {"revoked": ""}, {"until": NOW * 2}])
def test_a_forged_standing_approval_lets_in_nothing(
    forged: dict[str, Any], tmp_path: Path, again: Callable[[], Approvals]
) -> None:
    """Its bounds, the jobs that it has let in and its end are signed; the approver is told."""
    again().stand(ANN, STANDING)
    _admitted(again(), OTHER)
    if "revoked" in forged:
        again().revoke(BEN, "weekly")
    (path,) = tmp_path.glob("standing-*.json")
    plain = read_document(path, SEED)
    write_document(path, {**plain, **forged}, SEED)
    _waits(again())
    (said,) = again().faults(JOB)
    assert re.fullmatch("standing approval weekly: it does not count, as .*; make it anew, under another name", said)
    with pytest.raises(BadInput, match="there is a standing approval of that name"):
        again().stand(ANN, STANDING)


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("nth", range(5))
def test_a_kill_at_any_write_counts_no_job_too_little(
    nth: int, after: bool, again: Callable[[], Approvals], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more jobs are let in than the standing approval allows, and what was said to be decided stays so."""
    written = 0

    def dying(path: Path, content: bytes, **_: bool) -> None:
        nonlocal written
        written += 1
        if written == nth + 1 and not after:
            raise Killed
        write_whole(path, content)
        if written == nth + 1:
            raise Killed

    monkeypatch.setattr(durable, "write_whole", dying)
    one = STANDING.replace("count = 2", "count = 1")
    let_in, done = [], []
    orders: list[tuple[str, Callable[[Approvals], object]]] = [
        ("stand", lambda approvals: approvals.standing("weekly") or approvals.stand(ANN, one)),
        ("first", lambda approvals: approvals.admit(POLICY, JOB, _words)),
        ("second", lambda approvals: approvals.admit(POLICY, OTHER, _words)),
        ("decide", lambda approvals: approvals.decide(ANN, "job", OTHER.digest, days=1.0)),
        ("again", lambda approvals: approvals.admit(POLICY, OTHER, _words)),
    ]
    for word, order in orders:
        for _ in range(2):  # whoever asked asks again
            try:
                order(again())
            except Killed:
                continue
            except Pending:
                break
            done.append(word)
            break
        let_in = [asked for asked in again().listed() if asked.last is not None and asked.last.standing]
        assert len(let_in) <= 1
        assert len(again().standing("weekly")[0].used) >= len(let_in) if let_in else True
    assert done == ["stand", "first", "decide", "again"]
    assert [asked.digest for asked in let_in] == [JOB.digest]
