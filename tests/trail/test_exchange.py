"""Heads of trails in jobs: partners hold them, and an older state, a pruned or a rewritten trail ends the next job."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from party.runtime.ledger import LEDGER
from party.trail.journal import TRAIL
from party.trail.verify import differences, misfits
from tests.approvals.people import begin, certify
from tests.campaign.small_jobs import PREDICTIONS, PREVIEWS, TRAININGS, play, trained, training_of, wrong
from tests.simulator import Faults, Federation, Message, run
from tests.trail.previews import (
    HOLDER,
    B,
    C,
    acknowledged,
    brought_back,
    changed,
    failed,
    federation_of,
    kept,
    lines_of,
    previewed,
    rewritten,
    trail_of,
    without_last,
)
from tests.worlds import PARTIES
from treetap.errors import Unreachable
from treetap.protocols.messages import TRAIL_END
from treetap.wire.frame import name_of
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import exchange_pb2

STORIES = ["preview of a count", "boosting", "interactive", "serving"]
STORIES += [story for story in (*TRAININGS, *PREDICTIONS, *PREVIEWS) if story not in STORIES]
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
OLDER = (
    rf"feature-b: an older state was brought back, or the trail was pruned: (label-holder|feature-c) holds a head of "
    rf"{DATE} that trail\.jsonl of feature-b, which begins on {DATE}, lacks; bring the newer state back, or stop the "
    r"party and say why: treetap trail --config FILE --restored"
)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TlsFiles]:
    return certify(tmp_path_factory.mktemp("certificates"))


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("story", STORIES)
def test_partners_hold_signed_heads_of_every_job(story: str, tmp_path: Path, certificates: dict[str, TlsFiles]) -> None:
    """Each has a head of each other from the opening and, but for served models, the end; everything fits."""
    if story not in (*TRAININGS, *PREVIEWS):
        trained(training_of(story))

    async def main() -> None:
        federation = begin(tmp_path, story, certificates, {})
        status = await play(federation, story)
        assert status.state == ("cancelled" if story == "serving" else "finished"), status.error
        assert wrong(federation, story) == ""
        for name in federation.configs:
            peers = set(federation.configs) - {name}
            (heads,) = lines_of(federation, name, "heads")[-1:]
            (left,) = lines_of(federation, name, "left")[-1:]
            assert set(heads["came"]) <= peers
            assert left["faults"] == {}
            assert left["missing"] == (list(heads["came"]) if story == "serving" else [])
            for line in (heads, left):
                for peer, came in line["came"].items():
                    assert trail_of(federation, peer).has(came["head"])
            unsigned = [fault for fault in misfits(federation.configs[name]) if "(job job): " not in fault]
            assert unsigned == []  # models were trained in plain text
        await federation.close()

    run(main())


def test_no_line_is_in_two_trails_and_heads_tell_nothing(tmp_path: Path) -> None:
    """The same jobs twice have no head in common."""
    heads: set[str] = set()
    for folder in ("one", "other"):

        async def main(folder: Path = tmp_path / folder) -> list[str]:
            federation = federation_of(folder)
            await previewed(federation, "p1", "p2")
            await federation.close()
            return [head for name in PARTIES for _, head in trail_of(federation, name).lines()]

        now = run(main())
        assert len(set(now)) == len(now)
        assert not heads & set(now)
        heads |= set(now)


def _heads(federation: Federation) -> list[tuple[str, str]]:
    """The heads that parties sent each other at openings: (sender, receiver)."""
    return [(message.sender, message.to) for message in federation.log if message.word == "trail_head"]


CHANGES: dict[str, Callable[[Path], Callable[[Path], None]]] = {
    "the whole state": brought_back,
    "the trail alone": lambda copy: brought_back(copy, TRAIL),
    "the tail is cut off": lambda _: without_last(3),
    "a line in the middle is taken out": lambda _: rewritten(lambda lines: lines[:2] + lines[3:]),
    "a line is rewritten": lambda _: rewritten(lambda lines: [{**line, "operator": "eve"} for line in lines]),
    "the trail is deleted": lambda _: lambda state: (state / TRAIL).unlink(),
}


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("change", CHANGES)
def test_a_trail_that_lost_what_a_partner_holds_ends_the_job(
    change: str, tmp_path: Path, certificates: dict[str, TlsFiles]
) -> None:
    """The error says file, partner, date and remedy; the party sends no head, so that partners hold the newer one.

    With the newer state jobs go on, and without it once the party's people have said why; partners note the reason.
    """

    async def main() -> None:
        federation = federation_of(tmp_path, certificates)
        await previewed(federation, "p1")
        older = kept(federation, B)
        await previewed(federation, "p2")
        newer = shutil.copytree(federation.state(B), tmp_path / "newer")
        changed(federation, B, CHANGES[change](older))
        federation.log.clear()
        for job in ("p3", "p4"):
            assert re.search(OLDER, error := await failed(federation, job)), error
        assert (B, C) not in _heads(federation)
        changed(federation, B, brought_back(newer))
        await previewed(federation, "p5")
        changed(federation, B, CHANGES[change](older))
        await failed(federation, "p6")
        acknowledged(federation, B, "the disk broke")
        await previewed(federation, "p7", "p8")
        for name in (HOLDER, C):
            said = [
                line["came"][B].get("restored") for line in lines_of(federation, name, "heads") if B in line["came"]
            ]
            assert said[-2:] == ["the disk broke", None]
            assert list(misfits(federation.configs[name])) == []
        await federation.close()

    run(main())


@pytest.mark.parametrize("name", [LEDGER, "approvals"])
def test_a_ledger_or_approvals_brought_back_alone_end_the_job(name: str, tmp_path: Path) -> None:
    """The error names the older file, and the line that knows it."""

    async def main() -> None:
        federation = federation_of(tmp_path)
        approvals = federation.node(B).approvals
        approvals.stand("ann", STANDING)
        await previewed(federation, "p1")
        older = kept(federation, B)
        approvals.revoke("ann", "weekly")
        await previewed(federation, "p2")
        changed(federation, B, brought_back(older, name))
        error = await failed(federation, "p3")
        assert re.search(rf"feature-b: .*{name}: is an older state than trail\.jsonl knows", error), error
        assert "treetap trail --config FILE --restored" in error
        acknowledged(federation, B, "a test")
        await previewed(federation, "p4")
        assert list(misfits(federation.configs[B])) == []
        await federation.close()

    run(main())


STANDING = """
name = "weekly"
until = 2099-12-31
count = 2
coordinator = "coordinator"
partners = ["label-holder"]
table = "train"
"""


def test_a_ledger_brought_back_under_a_job_ends_the_next(tmp_path: Path) -> None:
    """The job's own last lines do not say that the older state is the one to go by."""

    async def main() -> None:
        federation = federation_of(tmp_path)
        await previewed(federation, "p1")
        older = kept(federation, B)
        await previewed(federation, "p2")

        def hook(message: Message) -> None:
            if message.sender == B and message.word == "trail_head":
                brought_back(older, LEDGER)(federation.state(B))

        federation.hook = hook
        await previewed(federation, "p3")
        federation.hook = None
        assert re.search(
            r"feature-b: .*ledger\.jsonl: is an older state than trail\.jsonl knows", await failed(federation, "p4")
        )
        await federation.close()

    run(main())


def test_a_decision_that_a_crash_kept_from_the_trail_comes_with_the_next_job(tmp_path: Path) -> None:
    """It is on disk first."""

    async def main() -> None:
        federation = federation_of(tmp_path)
        await previewed(federation, "p1")
        federation.node(B).approvals._noted = lambda _name, _digest: None
        federation.node(B).approvals.stand("ann", STANDING)
        changed(federation, B, lambda _: None)
        assert lines_of(federation, B, "decided") == []
        await previewed(federation, "p2")
        assert [line["name"] for line in lines_of(federation, B, "decided")] == ["standing-weekly"]
        await federation.close()

    run(main())


Parcel = exchange_pb2.PeerMessage


def _forged(parcel: Parcel) -> None:
    parcel.setup.trail_head.signed.signature = parcel.setup.trail_head.signed.signature[:-1] + b"\0"


def _short(parcel: Parcel) -> None:
    parcel.setup.trail_head.head = b"short"


def _bare(parcel: Parcel) -> None:
    parcel.setup.trail_head.ClearField("signed")


def _early(parcel: Parcel) -> None:
    parcel.setup.trail_head.signed.unix_nanos += 3600 * 10**9


LIES: dict[str, tuple[Callable[[Parcel], None], str]] = {
    "a forged signature": (_forged, "the signature of 'feature-b' is of something else, or was changed"),
    "a short head": (_short, "it has 5 bytes, not 32"),
    "no signature": (_bare, "its certificate cannot be read"),
    "a time to come": (_early, "the signature of 'feature-b' is of something else"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_head_that_is_not_what_it_claims_is_refused_by_name(
    lie: str, tmp_path: Path, certificates: dict[str, TlsFiles]
) -> None:
    """No other step of the job is done."""
    change, says = LIES[lie]

    def tampered(sender: str, _to: str, parcel: Parcel) -> Parcel:
        if (sender, parcel.job, name_of(parcel)) == (B, "p2", "trail_head"):
            change(parcel)
        return parcel

    error = _stopped(tmp_path, certificates, tampered, HOLDER)
    assert f"the head of feature-b's trail does not count: {says}" in error


@pytest.mark.parametrize("other", [(C, HOLDER), (B, C)], ids=["of another party", "for another party"])
def test_a_head_that_was_signed_for_another_pair_is_refused(
    other: tuple[str, str], tmp_path: Path, certificates: dict[str, TlsFiles]
) -> None:
    """Whoever made it, it came from this partner."""
    seen: dict[tuple[str, str], Parcel] = {}

    def tampered(sender: str, to: str, parcel: Parcel) -> Parcel:
        if name_of(parcel) == "trail_head" and parcel.job == "p1":
            seen[sender, to] = parcel
        elif (sender, to, name_of(parcel)) == (B, HOLDER, "trail_head"):
            parcel.setup.trail_head.CopyFrom(seen[other].setup.trail_head)
        return parcel

    error = _stopped(tmp_path, certificates, tampered, HOLDER)
    says = "the signature of '(feature-c|feature-b)' is of something else"
    assert re.search(f"the head of feature-b's trail does not count: {says}", error), error


def test_a_partner_that_claims_a_head_that_was_never_signed_is_refused(
    tmp_path: Path, certificates: dict[str, TlsFiles]
) -> None:
    """It is not this party's state that is older."""

    def tampered(sender: str, to: str, parcel: Parcel) -> Parcel:
        if (sender, to, parcel.job, name_of(parcel)) == (C, B, "p2", "trail_held"):
            parcel.setup.trail_held.head = bytes(32)
        return parcel

    error = _stopped(tmp_path, certificates, tampered, B)
    assert "feature-c says that it holds a head of feature-b's trail, and" in error


def _stopped(
    folder: Path, certificates: dict[str, TlsFiles], tampered: Callable[[str, str, Parcel], Parcel], victim: str
) -> str:
    """The error of the preview p2, before which p1 ends well; the victim of a lie sends nothing of its data."""

    async def main() -> str:
        federation = federation_of(folder, certificates)
        federation.tamper = tampered
        await previewed(federation, "p1")
        federation.log.clear()
        error = await failed(federation, "p2")
        told = {message.word for message in federation.log if message.sender == victim}
        assert told <= {"trail_held", "trail_head"}
        await federation.close()
        return error

    return run(main())


def test_a_partner_that_sends_no_head_ends_the_job(tmp_path: Path) -> None:
    """It is named once it has been silent for too long."""

    async def main() -> None:
        federation = federation_of(tmp_path)

        def hook(message: Message) -> None:
            if message.sender == C and message.word == "trail_held":
                raise Unreachable("the line is cut")

        federation.hook = hook
        assert "feature-c" in await failed_or_interrupted(federation)
        await federation.close()

    async def failed_or_interrupted(federation: Federation) -> str:
        status = await federation.preview(job="p1")
        assert status.state in ("failed", "interrupted")
        return str(status.error)

    run(main())


def test_a_last_head_that_does_not_come_fails_no_job(tmp_path: Path) -> None:
    """The trail says whose; the next job brings a head again."""

    async def main() -> None:
        federation = federation_of(tmp_path)

        def tampered(sender: str, _to: str, parcel: Parcel) -> Parcel:
            if sender == C and parcel.round == TRAIL_END:
                raise Unreachable("the line is cut")
            return parcel

        federation.tamper = tampered
        await previewed(federation, "p1")
        assert [line["missing"] for line in lines_of(federation, B, "left")] == [[C]]
        federation.tamper = None
        await previewed(federation, "p2")
        assert [line["missing"] for line in lines_of(federation, B, "left")] == [[C], []]
        await federation.close()

    run(main())


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("seed", range(3))
def test_repeated_and_late_heads_change_nothing(seed: int, tmp_path: Path) -> None:
    """Over a network that loses, doubles and delays; parties that meet in some jobs alone hold heads of these."""

    async def main() -> None:
        federation = federation_of(tmp_path)
        federation.faults = Faults(drop=0.1, lose_reply=0.1, double=0.3, delay_s=0.5, late_s=5.0, seed=seed)
        await previewed(federation, "p1")
        await previewed(federation, "p2", parties=(HOLDER, B))
        await previewed(federation, "p3")
        for name in PARTIES:
            came = [set(line["came"]) for line in lines_of(federation, name, "heads")]
            assert came[-1] == {*PARTIES} - {name}
        await federation.close()

    run(main())


def test_a_partner_that_holds_less_than_before_is_noted(tmp_path: Path) -> None:
    """Its own state is older; it has not said so."""

    async def main() -> None:
        federation = federation_of(tmp_path)
        await previewed(federation, "p1", "p2")
        first: dict[str, Any] = lines_of(federation, B, "heads")[1]["came"][C]

        def tampered(sender: str, to: str, parcel: Parcel) -> Parcel:
            if (sender, to, name_of(parcel)) == (C, B, "trail_held"):
                parcel.setup.trail_held.head = bytes.fromhex(first["held"])
            return parcel

        await previewed(federation, "p3")
        federation.tamper = tampered
        await previewed(federation, "p4")
        older = [line["came"][C].get("older") for line in lines_of(federation, B, "heads")]
        assert older[:3] == [None] * 3
        assert older[3] == lines_of(federation, B, "heads")[2]["came"][C]["held"]
        await federation.close()

    run(main())


def test_exports_show_whose_lines_are_missing(tmp_path: Path, certificates: dict[str, TlsFiles]) -> None:
    """Each end's export, whole or for the partner alone, fits, until one end prunes or rewrites."""

    async def main() -> None:
        federation = federation_of(tmp_path, certificates)
        await previewed(federation, "p1", "p2")
        export = tmp_path / "c.jsonl"
        export.write_text(trail_of(federation, C).text())
        assert list(differences(federation.configs[B], export)) == []
        changed(federation, B, without_last(3))
        (*_, lacks) = differences(federation.configs[B], export)
        assert re.search(rf"trail\.jsonl: lacks the head of {DATE} \(job p2\), which feature-c holds", lacks)
        assert list(differences(federation.configs[HOLDER], export)) == []
        changed(federation, C, rewritten(lambda lines: [{**line, "operator": "eve"} for line in lines]))
        export.write_text(trail_of(federation, C).text())
        faults = list(differences(federation.configs[HOLDER], export))
        assert len(faults) == 4
        for fault in faults:
            assert re.search(rf"lacks the head of {DATE} \(job p[12]\) that label-holder has from feature-c", fault)
        await federation.close()

    run(main())
