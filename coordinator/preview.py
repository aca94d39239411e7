"""A preview of an alignment: the operator's request as the opening that the parties receive, and its course.

The coordinator hears the number of common records, or that they are fewer than some party's policy lets out; it sees no
identifier and no row. A preview that breaks down is asked anew: nothing of it is kept.
"""

from __future__ import annotations

import logging

from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster, answered
from treetap.errors import Malformed
from treetap.protocols.alignment import count_turns, turns
from treetap.protocols.preview import check_common, check_preview
from treetap.wire.v2 import alignment_pb2, jobs_pb2

log = logging.getLogger(__name__)


def preview_of(request: jobs_pb2.AlignRequest) -> alignment_pb2.OpenPreview:
    """The opening of a preview; `ConfigError` where no federation could do it."""
    opening = alignment_pb2.OpenPreview(
        answer=request.answer or "count",
        table=request.table or "train",
        parties=request.parties,
        submission=request.submission,
    )
    check_preview(opening)
    return opening


async def answer(roster: Roster, opening: alignment_pb2.OpenPreview, progress: Progress) -> None:
    """Conduct a preview, and set its answer in the status.

    1. Every party loads its ids, and charges the preview to its account once all have.
    2. The turns of the count, or those of a job's alignment.
    3. Of records, every party writes its own rows.
    """
    progress.phase("prepare")
    opening.peers.extend(roster.peers())
    await roster.ask_all(roster.names, "open_preview", opening)
    await roster.ask_all(roster.names, "charge_preview")
    progress.phase("align")
    counting, first = opening.answer == "count", opening.parties[0]
    plan = (count_turns if counting else turns)(len(opening.parties))
    for number, turn in enumerate(plan):
        progress.round(number, len(plan))
        names = [opening.parties[place] for place in turn.places]
        results = await roster.ask_all(names, turn.step, stage=turn.stage)
        if turn.step == "count_ids":
            progress.status.common.CopyFrom(check_common(first, answered(first, results[first], "counted_ids").common))
    if counting:
        _say(progress)
        return
    progress.phase("write")
    results = await roster.ask_all(roster.names, "write_rows")
    written = {party: answered(party, result, "written_rows") for party, result in results.items()}
    if len({rows.common.records for rows in written.values()}) > 1:
        raise Malformed(f"{', '.join(written)} do not agree how many records are common")
    progress.status.common.CopyFrom(check_common(first, written[first].common))
    progress.status.rows.extend(jobs_pb2.PartyRows(party=party, path=rows.path) for party, rows in written.items())
    _say(progress)


def _say(progress: Progress) -> None:
    """Log what this coordinator and its operator now know."""
    status = progress.status
    what = f"fewer than {status.common.fewer_than}" if status.common.fewer_than else str(status.common.records)
    log.warning("job %s: a leak by a preview: this coordinator knows of %s records in common", status.job, what)
