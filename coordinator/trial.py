"""A training that is checked before it begins: every party is asked at once, and all answers are told.

No job begins: the journal has no line of it, and no party keeps anything. A party that refuses, or whose table has a
fault, keeps no other from its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from treetap.coordinator.attempt import Parties
from treetap.coordinator.runtime.job_record import Submitted, to_base64
from treetap.coordinator.runtime.roster import Roster, answered
from treetap.errors import BadInput, Incompatible, Overloaded, Refused, TreetapError
from treetap.protocols.drafts import new_submission
from treetap.wire.v2 import jobs_pb2, setup_pb2

#: Seconds between two answers to an operator who waits for parties that read their tables.
SIGN_OF_LIFE_S = 2.0


class Trials:
    """Has the parties of a coordinator check jobs, one at a time."""

    def __init__(self, parties: Parties) -> None:
        self._parties = parties
        self._under_way = False

    async def check(
        self, job: str, spec: setup_pb2.JobSpec, taken: TreetapError | None
    ) -> AsyncIterator[jobs_pb2.CheckReply]:
        """The answers to a job under a name that is free. `taken`: the fault of the name that was asked for.

        Raises:
            Overloaded: another job is being checked.
        """
        if self._under_way:
            raise Overloaded("the coordinator has another job checked; ask again")
        self._under_way = True
        try:
            if taken is not None:
                yield jobs_pb2.CheckReply(answers=[_fault(self._parties.coordinator, taken)])
            submitted = Submitted(job, "train", new_submission(), to_base64(spec))
            roster = self._parties.roster(job, 1, submitted, submitted.members, self._parties.byte_counts(), None)
            async for answers in _answers(roster, spec):
                yield jobs_pb2.CheckReply(answers=answers)
        finally:
            self._under_way = False


async def _answers(roster: Roster, spec: setup_pb2.JobSpec) -> AsyncIterator[list[jobs_pb2.Checked]]:
    """The parties' answers as they come, none meanwhile; then what only all of them together show."""
    body = setup_pb2.CheckJob(spec=spec, peers=roster.peers())
    asked = {asyncio.ensure_future(roster.ask(party, "check_job", body)): party for party in roster.names}
    waiting, bare = set(asked), []
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, timeout=SIGN_OF_LIFE_S, return_when=asyncio.FIRST_COMPLETED)
            answers = []
            for task, party in asked.items():
                if task not in done:
                    continue
                try:
                    checked = answered(party, task.result(), "checked_job")
                    if checked.without_columns:
                        bare.append(party)
                    answers.append(jobs_pb2.Checked(party=party, would_wait=checked.would_wait))
                except TreetapError as fault:
                    answers.append(_fault(party, fault))
            yield answers
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    if len(bare) == len(roster.names):
        nothing = f"no party has a feature: columns of table {spec.table!r} names none at {' and '.join(bare)}"
        yield [jobs_pb2.Checked(party=spec.aggregator, error=nothing, bad_input=True)]


def _fault(who: str, fault: TreetapError) -> jobs_pb2.Checked:
    """The answer of a party that has something against the job, or cannot be asked."""
    of_people = isinstance(fault, BadInput | Refused | Incompatible)
    return jobs_pb2.Checked(party=who, error=str(fault), bad_input=of_people)
