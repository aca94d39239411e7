"""A party's approvals: jobs that wait for its people, what these decided, and standing approvals.

`state/approvals` has one file a job, JOB's digest, and one a standing approval, each whole or not there. A decision is
on disk before it has an effect; so is the count of a standing approval, which a crash can make too small and never too
large. Both are countersigned and verified whenever a job opens: an approval that an editor of these files writes counts
for nothing. An older state that is brought back is not noticed.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from treetap.errors import BadInput, Conflict, DataError, Malformed, Overloaded, Pending, Refused, UnknownJob, visible
from treetap.models.durable import read_document, sync_folder, write_document
from treetap.party.approvals.decisions import (
    APPROVED,
    COMMAND,
    DISPUTED,
    END,
    ENDED,
    REFUSED,
    STANDING,
    Asked,
    Standing,
    Verdict,
    check_countersigned,
    countersigned,
    parties_of,
    standing_of,
    statement,
)
from treetap.party.policy import Policy
from treetap.wire.tls import Transport

if TYPE_CHECKING:
    from treetap.party.config import PartyConfig

log = logging.getLogger(__name__)
#: Their folder in a party's state.
APPROVALS = "approvals"
SEED = "approvals"
#: Most jobs that wait, of which each coordinator of the policy has an equal share; standing approvals; files of jobs.
MOST_WAITING, MOST_STANDING, MOST_KEPT = 64, 64, 1024
#: Least and most days for which an approval holds, and those after which a job that waits makes room for another.
LEAST_DAYS, LONGEST_DAYS, WAIT_DAYS = 1.0, 366.0, 30.0
DAY_S = 86_400.0
#: Most characters of a reason.
LONGEST_WHY = 400
_STANDING = "standing-"


class Approvals:
    """The approvals of one party. Raises `DataError` if a file is damaged.

    `clock`: seconds since 1970.
    """

    def __init__(self, party: str, folder: Path, transport: Transport, clock: Callable[[], float] = time.time) -> None:
        self._party, self._folder, self._transport, self.clock = party, folder, transport, clock
        self._asked: dict[str, Asked] = {}
        self._standing: dict[str, Standing] = {}
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            try:
                plain = read_document(path, SEED)
                if path.name.startswith(_STANDING):
                    self._standing[plain["name"]] = Standing.of(plain)
                else:
                    self._asked[plain["digest"]] = Asked.of(plain)
            except (DataError, KeyError, TypeError, ValueError):
                raise DataError(
                    f"{path}: is damaged; bring a back-up of it back, or remove it: what it approved then needs a new "
                    "approval"
                ) from None
        self._asked = dict(sorted(self._asked.items(), key=lambda item: item[1].since))

    # ---- jobs that open

    def admit(self, policy: Policy, asked: Asked, words: Callable[[], tuple[str, ...]]) -> None:
        """Return if a job may open. `asked`: without words, which are made for one that waits, or is signed.

        Raises:
            Pending: nobody has approved it yet, or the approval has expired.
            BadInput: it was refused, or has ended here, or two attempts ended by a check of a peer's numbers.
            Refused: another coordinator asks for it than the one that people were shown; or an attempt ended by such a
                check, and the policy names nobody who could let it go on.
            Overloaded: too many jobs of its coordinator wait already.
        """
        known = self._asked.get(asked.digest)
        job = known or replace(asked, since=self.clock())
        self._check_refused(job)
        verdict = job.last
        if job.disputes > 1:
            raise BadInput(
                f"job {job.job} has ended here twice by a check of a peer's numbers, and goes on once after such an "
                "end, which tells that peer something: ask what it runs before any other job with it",
                party=self._party,
            )
        if job.disputes and not policy.people.approvers:
            raise Refused(
                f"job {job.job} has ended by a check of a peer's numbers, after which {self._party}'s people let it go "
                f"on, once: name approvers under [people] of {self._party}'s policy, and send it SIGHUP"
            )
        if policy.people.approval == "none" and not job.disputes:
            if known.waits if known is not None else asked.operator:
                self._keep(replace(job, words=words(), waits=False))
            return
        if job.coordinator != asked.coordinator:
            raise Refused(
                f"job {job.job} is {job.coordinator}'s at {self._party}, not {asked.coordinator}'s: another "
                "coordinator needs a new approval; submit a new job"
            )
        if verdict is not None and verdict.decision == ENDED:
            raise BadInput(
                f"job {job.job} has ended here; submit a new job, which {self._party} has to approve", party=self._party
            )
        if self.holds(job) or (not job.disputes and self._let_in(job)):
            return
        if known is None:
            self._make_room(asked.coordinator, max(1, MOST_WAITING // max(1, len(policy.people.coordinators))))
        shown = replace(job, words=words(), waits=True)
        if shown != known:
            self._keep(shown)
        raise Pending(f"waiting for approval of {self._party}")

    def check_goes_on(self, policy: Policy, digest: str, *, serves: bool) -> None:
        """Return if a job that has opened may go on; one that is not known here may.

        `serves`: it serves a model, which ends by itself never, and so goes on for as long as it is approved.

        Raises:
            BadInput: people have refused it since.
            Pending: it serves a model, and the approval has expired, or the standing one behind it was revoked.
        """
        if (job := self._asked.get(digest)) is None or (verdict := job.last) is None:
            return
        self._check_refused(job)
        if serves and policy.people.approval != "none" and verdict.decision == APPROVED and not self._lasts(verdict):
            raise Pending(f"waiting for approval of {self._party}")

    def _check_refused(self, job: Asked) -> None:
        if (verdict := job.last) is not None and verdict.decision == REFUSED:
            why = f": {verdict.why}" if verdict.why else ""
            raise BadInput(f"{self._party} has refused job {job.job}{why} (by {verdict.approver})", party=self._party)

    def _lasts(self, verdict: Verdict) -> bool:
        """True if an approval is within its dates, and the standing one behind it, if there is one, not revoked."""
        standing = self._standing.get(verdict.standing)
        revoked = bool(verdict.standing) and (standing is None or bool(standing.revoked))
        return verdict.since <= self.clock() < verdict.until and not revoked

    def _make_room(self, coordinator: str, most: int) -> None:
        """Forget a coordinator's job that has waited longest, if `most` wait and it has waited for `WAIT_DAYS`."""
        waiting = [job for job in self._asked.values() if self._waits(job) and job.coordinator == coordinator]
        if len(waiting) < most:
            return
        if self.clock() - waiting[0].since < WAIT_DAYS * DAY_S:
            raise Overloaded(f"at {self._party} {most} jobs wait for approval already, all of {coordinator}")
        self._forget(waiting[0].digest)

    def approved_before(self, asked: Asked) -> Asked | None:
        """The other job of its kind and of its first party that was approved last, if there is one."""
        alike = [
            (verdict.since, job)
            for job in self._asked.values()
            for verdict in job.verdicts
            if verdict.decision == APPROVED and job.kind == asked.kind and job.digest != asked.digest
            if parties_of(job.document)[:1] == parties_of(asked.document)[:1]
        ]
        return max(alike, key=lambda row: row[0])[1] if alike else None

    def knows(self, digest: str) -> bool:
        """True if this party keeps a job."""
        return digest in self._asked

    def withdraw(self, coordinator: str, job: str, submission: str) -> None:
        """Forget a job that waits and whose coordinator has given it up."""
        for asked in self.listed(job):
            if self._waits(asked) and (asked.coordinator, asked.submission) == (coordinator, submission):
                self._forget(asked.digest)

    def end(self, coordinator: str, job: str, submission: str) -> None:
        """Close the approval of a job that ends: no later attempt opens by it, nor by the standing one behind it."""
        for asked in self.listed(job):
            if asked.submission != submission or asked.last is None or asked.last.decision != APPROVED:
                continue
            now = self.clock()
            self._decided(asked, Verdict(ENDED, coordinator, END, now, now))

    def dispute(self, asked: Asked, peer: str) -> None:
        """Note that an attempt has ended by a check of a peer's numbers: no later one opens unless people let it."""
        now = self.clock()
        verdict = Verdict(DISPUTED, self._party, END, now, now, visible(peer[:LONGEST_WHY]))
        self._decided(self._asked.get(asked.digest) or replace(asked, since=now), verdict)

    def would_wait(self, policy: Policy, asked: Asked) -> bool:
        """True if a job would wait for a person."""
        return policy.people.approval == "manual" and self._covering(asked) is None

    def holds(self, job: Asked) -> bool:
        """True if a job's last decision is an approval that counts now: in its dates, countersigned, not revoked."""
        verdict = job.last
        if verdict is None or verdict.decision != APPROVED or not self._lasts(verdict):
            return False
        try:
            check_countersigned(self._party, self._transport, verdict.countersigned, self._statement(job, verdict))
        except Malformed as fault:
            log.error("job %s: the approval by %s does not count: %s", job.job, verdict.approver, fault)
            return False
        return True

    def state(self, job: Asked) -> str:
        """State of a job for its readers: open, waiting, approved, refused, ended or expired."""
        if job.last is None or job.undecided:
            return "waiting" if self._waits(job) else "open"
        if job.last.decision != APPROVED:
            return job.last.decision
        return APPROVED if self.holds(job) else "expired"

    def waiting(self) -> int:
        """The number of jobs that wait for people."""
        return sum(map(self._waits, self._asked.values()))

    def _waits(self, job: Asked) -> bool:
        return job.undecided and job.waits

    # ---- people

    def check_approver(self, policy: Policy, caller: str) -> None:
        """`Refused` for a caller whom the policy does not name."""
        if caller not in policy.people.approvers:
            approvers = json.dumps(policy.people.approvers)
            raise Refused(f"{caller} is no approver of {self._party} (its policy: approvers = {approvers})")

    def listed(self, job: str = "") -> list[Asked]:
        """The jobs of that name, or all, in the order in which they were asked for."""
        return [asked for asked in self._asked.values() if job in ("", asked.job)]

    def decide(self, approver: str, job: str, digest: str, *, days: float | None, why: str = "") -> Asked:
        """Approve a job for this number of days, or refuse it (None). An approval that holds already stays as it is.

        Raises:
            UnknownJob: this party was not asked for a job of that name.
            Conflict: it was asked for another one than the digest's.
            BadInput: no such number of days, or the job has ended here.
            Interrupted, OSError: it could not be kept, and has no effect.
        """
        asked = self._asked.get(digest)
        if asked is None or asked.job != job:
            others = [other.digest[:12] for other in self.listed(job)]
            if not others:
                raise UnknownJob(f"{self._party} was asked for no job {job!r}; see: treetap jobs")
            raise Conflict(
                f"job {job} is not the one that was shown (digest {digest[:12] or 'none'}, here {', '.join(others)}); "
                f"look at it again: treetap jobs {job}"
            )
        if asked.last is not None and asked.last.decision == ENDED:
            raise BadInput(f"job {job} has ended here; have its operator submit a new one")
        now = self.clock()
        if days is None:
            verdict = Verdict(REFUSED, approver, COMMAND, now, now, visible(why[:LONGEST_WHY]))
        else:
            if not LEAST_DAYS <= days <= LONGEST_DAYS:
                raise BadInput(f"days = {days:g}: an approval holds for {LEAST_DAYS:g} to {LONGEST_DAYS:g} days")
            if self.holds(asked):
                return asked
            verdict = Verdict(APPROVED, approver, COMMAND, now, now + days * DAY_S)
        return self._decided(asked, verdict)

    def stand(self, approver: str, text: str) -> Standing:
        """Keep a standing approval; `BadInput` for a text that is none, or a name that another one has."""
        made = standing_of(text, approver, self.clock())
        if made.name in self._standing:
            raise BadInput(f"name = {made.name!r}: there is a standing approval of that name; choose another")
        if len(self._standing) >= MOST_STANDING:
            raise BadInput(f"there are {MOST_STANDING} standing approvals: none more is kept")
        return self._keep_standing(made)

    def standing(self, name: str = "") -> list[Standing]:
        """The standing approval of that name, or all."""
        return [kept for kept in self._standing.values() if name in ("", kept.name)]

    def revoke(self, approver: str, name: str) -> Standing:
        """End a standing approval: no job opens by it any more, and none that it let in resumes."""
        if name not in self._standing:
            raise UnknownJob(f"{self._party} has no standing approval {name!r}; see: treetap jobs")
        return self._keep_standing(replace(self._standing[name], revoked=approver))

    # ---- standing approvals

    def _covering(self, asked: Asked) -> Standing | None:
        """A standing approval that lets a job in, or has let it in already."""
        return next((standing for standing in self._standing.values() if not self._fault(standing, asked)), None)

    def faults(self, asked: Asked) -> Iterator[str]:
        """The reasons why no standing approval lets a job in, one for each."""
        for standing in self._standing.values():
            if fault := self._fault(standing, asked):
                yield f"standing approval {standing.name}: {fault}"

    def _fault(self, standing: Standing, asked: Asked) -> str:
        """The reason why it does not let a job in; empty if it does."""
        if fault := standing.fault(asked, self._party, self.clock()):
            return fault
        content = statement("standing approval", standing, party=self._party)
        try:
            check_countersigned(self._party, self._transport, standing.countersigned, content)
        except Malformed as why:
            log.error("standing approval %s does not count: %s", standing.name, why)
            return f"it does not count, as {why}; make it anew, under another name"
        return ""

    def _let_in(self, asked: Asked) -> bool:
        """Let a job in by a standing approval, if one covers it: counted first, then decided."""
        standing = self._covering(asked)
        if standing is None:
            return False
        if asked.digest not in standing.used:
            standing = self._keep_standing(replace(standing, used=(*standing.used, asked.digest)))
            log.info("job %s is let in by standing approval %s", asked.job, standing.name)
        way = f"{STANDING}{standing.name}"
        self._decided(asked, Verdict(APPROVED, standing.approver, way, self.clock(), standing.until))
        return True

    # ---- the disk

    def _decided(self, asked: Asked, verdict: Verdict) -> Asked:
        signature = countersigned(self._transport, self._statement(asked, verdict), int(self.clock() * 1e9))
        log.warning("job %s: %s by %s (%s)", asked.job, verdict.decision, verdict.approver, verdict.way)
        return self._keep(replace(asked, verdicts=(*asked.verdicts, replace(verdict, countersigned=signature))))

    def _statement(self, asked: Asked, verdict: Verdict) -> bytes:
        """The bytes that the party countersigns of a decision about a job."""
        of = {"party": self._party, "job": asked.job, "digest": asked.digest, "coordinator": asked.coordinator}
        return statement("approval", verdict, **of)

    def _keep(self, asked: Asked) -> Asked:
        # one that neither waits nor was decided is asked for anew by the next opening
        settle = bool(asked.verdicts) or asked.waits
        write_document(self._folder / f"{asked.digest}.json", asdict(asked), SEED, settle=settle)
        self._asked[asked.digest] = asked
        if len(self._asked) > MOST_KEPT:
            self._forget(next(old for old, job in self._asked.items() if not self._waits(job)))
        return asked

    def _keep_standing(self, standing: Standing) -> Standing:
        content = statement("standing approval", standing, party=self._party)
        signature = countersigned(self._transport, content, int(self.clock() * 1e9))
        standing = replace(standing, countersigned=signature)
        write_document(self._folder / f"{_STANDING}{standing.name}.json", asdict(standing), SEED)
        self._standing[standing.name] = standing
        return standing

    def _forget(self, digest: str) -> None:
        (self._folder / f"{digest}.json").unlink(missing_ok=True)
        sync_folder(self._folder)
        del self._asked[digest]


def approvals_of(party: PartyConfig) -> Approvals:
    """The approvals of a party, which need not run; raises as `Approvals`."""
    return Approvals(party.name, party.state / APPROVALS, party.transport())
