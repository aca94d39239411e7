"""Previews of an alignment: the request that an operator makes, and the checks that every process makes of it.

A preview answers, before any job, how many records all parties hold (count), or has each party write its own row
numbers of these (records).
"""

from __future__ import annotations

from collections.abc import Iterator

from treetap.errors import ConfigError, Malformed, did_you_mean
from treetap.names import NAME, check_name
from treetap.protocols.alignment import MOST_IDS, PREVIEWS
from treetap.protocols.messages import JOB, Members, MessageRow, Sent, sent_by
from treetap.wire.v2 import alignment_pb2, types_pb2

#: Answers, each of which tells more than the one before it.
ANSWERS = tuple(PREVIEWS)


def check_preview(opening: alignment_pb2.OpenPreview) -> None:
    """`ConfigError` listing everything in a preview that no federation could do."""
    faults, parties = [], list(opening.parties)
    if opening.answer not in ANSWERS:
        meant = did_you_mean(opening.answer, ANSWERS)
        faults.append(f"answer = {opening.answer!r}: must be one of {', '.join(ANSWERS)}{meant}")
    if len(parties) < 2:
        faults.append("parties: name two or more, whose tables are to be compared")
    if twice := next((name for name in parties if parties.count(name) > 1), ""):
        faults.append(f"parties: {twice!r} is named twice")
    if not all(map(NAME.match, parties)):
        faults.append("parties: one is no name of a party")
    try:
        check_name(opening.table)
    except ValueError as wrong:
        faults.append(f"table: {wrong}")
    if faults:
        raise ConfigError("\n".join(faults))


def check_common(party: str, common: types_pb2.CommonCount) -> types_pb2.CommonCount:
    """The answer of a party to a preview; `Malformed` unless it is a number that lists can have, or fewer than one."""
    numbers = (common.records, common.fewer_than)
    if min(numbers) or not 1 <= max(numbers) <= MOST_IDS:
        raise Malformed(
            f"{party} says that {common.records} records are common, or fewer than {common.fewer_than}: one must be "
            f"from 1 to {MOST_IDS}, the other 0"
        )
    return common


def members_of_preview(opening: alignment_pb2.OpenPreview, coordinator: str) -> Members:
    """The parties; the first one combines the lists."""
    return Members(coordinator, opening.parties[0], tuple(opening.parties[1:]))


def rows_of_preview(opening: alignment_pb2.OpenPreview) -> list[MessageRow]:
    """The rows of all messages of a preview that `check_preview` has passed."""
    return [*JOB, *PREVIEWS[opening.answer]]


def sent_in_preview(opening: alignment_pb2.OpenPreview, coordinator: str) -> Iterator[Sent]:
    """All that a preview has its parties send, once `check_preview` has passed it."""
    return sent_by(rows_of_preview(opening), members_of_preview(opening, coordinator))
