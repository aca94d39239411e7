"""Alignment of the records, party to party (docs/alignment.md). The coordinator only calls the turns."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.runtime.roster import Roster
from treetap.process.together import together
from treetap.protocols.alignment import turns


async def align(roster: Roster, parties: Sequence[str], mode: str) -> None:
    """Align the records of `parties`: the label holder, then the feature parties in the order of the job."""
    if mode == "sorted-ids":
        await compare_digests(roster, parties)
        return
    for turn in turns(len(parties)):
        names = [parties[place] for place in turn.places]
        await roster.ask_all(names, turn.step, stage=turn.stage)


async def compare_digests(roster: Roster, parties: Sequence[str]) -> None:
    """Feature parties send the digest of their sorted ids; the label holder compares."""
    sending = roster.ask_all(parties[1:], "send_digest")
    await together(sending, roster.ask(parties[0], "compare_digests"))
