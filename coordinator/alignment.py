"""Finding the common records, party to party (docs/alignment.md). The coordinator says whose turn it is, no more."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import Message

from coordinator.roster import Roster, together
from treetap.wire.alignment import turns
from treetap.wire.v1 import alignment_pb2

BODIES: dict[str, type[Message]] = {
    "blind_ids": alignment_pb2.BlindIds,
    "pass_ids": alignment_pb2.PassIds,
    "raise_ids": alignment_pb2.RaiseIds,
    "relay_ids": alignment_pb2.RelayIds,
    "combine_ids": alignment_pb2.CombineIds,
    "refresh_ids": alignment_pb2.RefreshIds,
    "trace_ids": alignment_pb2.TraceIds,
    "match_ids": alignment_pb2.MatchIds,
    "agree_ids": alignment_pb2.AgreeIds,
}


async def align(roster: Roster, parties: Sequence[str], mode: str) -> None:
    """`parties`: the label holder, then the feature parties, in the order of the job."""
    if mode == "sorted-ids":
        await compare_digests(roster, parties)
        return
    for turn in turns(len(parties)):
        names = [parties[place] for place in turn.places]
        await roster.ask_all(names, turn.word, BODIES[turn.word](), level=turn.level)


async def compare_digests(roster: Roster, parties: Sequence[str]) -> None:
    """Feature parties send the digest of their sorted ids; the label holder compares."""
    sending = roster.ask_all(parties[1:], "send_digest", alignment_pb2.SendDigest())
    await together(sending, roster.ask(parties[0], "compare_digests", alignment_pb2.CompareDigests()))
