"""Record alignment: its messages, and the turns of private set intersection and of its count (docs/alignment.md).

A preview answers, before any job, how many records all parties hold (count), or has each party write its own row
numbers of these (records); here are the checks that every process makes of an operator's request for one.

Computing and sending are turns of their own: a party that still computes sends nothing to its peers but reports to the
coordinator, and in a pass every party reads while it sends, whatever the length of the lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

from treetap.errors import ConfigError, Malformed, did_you_mean
from treetap.names import NAME, check_name
from treetap.protocols.messages import (
    JOB,
    JobSizes,
    Members,
    MessageRow,
    Pairs,
    Series,
    all_report,
    at_most,
    each_round,
    label_holder_reports,
    once,
    to_each_other,
    to_feature_parties,
    to_label_holder,
    with_label_holder,
)

if TYPE_CHECKING:
    from treetap.wire.v2 import alignment_pb2, types_pb2

#: Bytes of a blinded id: see `treetap.psi.group`, which the coordinator must not import.
POINT_BYTES = 32
#: Most ids of a party's list.
MOST_IDS = 1 << 27
Routes = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class AlignmentTurn:
    """`step` at all `places` at once, under its own number `stage`.

    `routes`: in a pass, (from, to); (a, a) keeps the party's current list, which sending otherwise removes.
    """

    step: str
    stage: int
    places: tuple[int, ...]
    routes: Routes = ()


#: Turns in their order.
Plan = tuple[AlignmentTurn, ...]


@cache
def turns(parties: int, *, pairwise: bool = False) -> Plan:
    """All turns in order; places are those of the job's parties, the label holder's is 0. One party has none.

    `pairwise`: the label holder takes each turn with every other party, as with one alone; routes are those of a pair.
    """
    if parties == 1:
        return ()
    if pairwise:
        everyone = tuple(range(parties))
        return tuple(replace(turn, places=everyone if len(turn.places) > 1 else turn.places) for turn in _between_two())
    return _between_two() if parties == 2 else _around_a_ring(parties)


@cache
def count_turns(parties: int) -> Plan:
    """All turns of a count, of two parties and more; the combiner's place is 0.

    1. Every list goes around, raised and shuffled by each; all end at the combiner. So the list of no party, the
       combiner's own included, comes to it in an order that its owner knows: the combiner learns how many points are
       common, and cannot say of which ids they are.
    2. The combiner counts, and tells the others.
    """
    number = count()
    return (
        *_to_the_combiner(parties, number),
        AlignmentTurn("count_ids", next(number), (0,)),
        AlignmentTurn("take_count", next(number), tuple(range(1, parties))),
    )


@cache
def owners(plan: Plan, place: int) -> Mapping[tuple[int, int], int | None]:
    """Whose list comes to a place, by (from, stage); None: the list of common points."""
    assigned: dict[tuple[int, int], int | None] = {}
    held: dict[int, int | None] = {}
    for turn in plan:
        if turn.step in ("blind_ids", "trace_ids"):
            held = {party: party for party in turn.places}
        elif turn.step == "combine_ids":
            held = {0: None}
        elif turn.routes:
            assigned |= {(here, turn.stage): held[here] for here, there in turn.routes if there == place != here}
            held = {there: held[here] for here, there in turn.routes}
    return assigned


def _between_two() -> Plan:
    """Each blinds its ids; each raises the other's and returns them, and proves that; both compare lists, and agree."""
    both, swap = (0, 1), ((0, 1), (1, 0))
    return (
        AlignmentTurn("blind_ids", 0, both),
        AlignmentTurn("pass_ids", 1, both, swap),
        AlignmentTurn("raise_ids", 2, both),
        AlignmentTurn("pass_ids", 3, both, swap),
        AlignmentTurn("prove_ids", 4, both),
        AlignmentTurn("match_ids", 5, both),
        AlignmentTurn("agree_ids", 6, (0,)),
    )


def _to_the_combiner(parties: int, number: Iterator[int]) -> Plan:
    """Every list goes around, raised and shuffled by each; all end at the first party."""
    places = tuple(range(parties))
    made = [AlignmentTurn("blind_ids", next(number), places)]
    for _ in places[1:]:
        made.append(AlignmentTurn("pass_ids", next(number), places, _ring(parties)))
        made.append(AlignmentTurn("relay_ids", next(number), places))
    made.append(AlignmentTurn("pass_ids", next(number), places, tuple((place, 0) for place in places)))
    return tuple(made)


def _ring(parties: int) -> Routes:
    return tuple((place, (place + 1) % parties) for place in range(parties))


def _around_a_ring(parties: int) -> Plan:
    """Three and more.

    1. Every list goes around, raised and shuffled by each; all end at the first party, which keeps the points that all
       hold.
    2. The common points go around once more, for fresh exponents, shuffled by each; the last party sends them to all.
    3. Every owner's list goes around under the fresh exponents, its order kept, back to its owner alone.
    4. Where a party asks, each proves to it how it has raised its list.
    5. Each owner names its common records; the first party compares the results of all.
    """
    places, last, ring = tuple(range(parties)), parties - 1, _ring(parties)
    number = count()
    made = [*_to_the_combiner(parties, number)]
    made.append(AlignmentTurn("combine_ids", next(number), (0,)))
    for place in places[1:]:
        made.append(AlignmentTurn("pass_ids", next(number), (place - 1, place), ((place - 1, place),)))
        made.append(AlignmentTurn("refresh_ids", next(number), (place,)))
    made.append(AlignmentTurn("pass_ids", next(number), places, tuple((last, place) for place in places)))
    made.append(AlignmentTurn("trace_ids", next(number), places))
    for _ in places:
        made.append(AlignmentTurn("pass_ids", next(number), places, ring))
        made.append(AlignmentTurn("raise_ids", next(number), places))
    made.append(AlignmentTurn("prove_ids", next(number), places))
    made.append(AlignmentTurn("match_ids", next(number), places))
    made.append(AlignmentTurn("agree_ids", next(number), (0,)))
    return tuple(made)


# ---- messages


@dataclass(frozen=True)
class Passes:
    """The lists of blinded ids that parties pass on in the turns of a plan, which follows from their number."""

    plan: Callable[[int], Plan]

    def route(self, members: Members) -> Pairs:
        """Each party to those to whom it passes a list in some turn of private set intersection."""
        if members.pairwise:
            return with_label_holder(members)
        parties = members.parties
        passed = {route for turn in self.plan(len(parties)) for route in turn.routes}
        return [(parties[here], parties[there]) for here, there in sorted(passed) if here != there]

    def each_pass(self, sizes: JobSizes, sender: str, receiver: str) -> tuple[range, set[int]]:
        """For each key in each turn in which the one passes a list to the other."""
        parties = sizes.members.aligned(sender, receiver)
        route = parties.index(sender), parties.index(receiver)
        return range(sizes.keys), {turn.stage for turn in self.plan(len(parties)) if route in turn.routes}

    def points_of_ids(self, sizes: JobSizes, series: Series) -> int:
        """A point for each id of the list's owner, with a proof a bit more; of the common ids, no more than the own."""
        parties = sizes.members.aligned(series.sender, series.receiver)
        place, sender = parties.index(series.receiver), parties.index(series.sender)
        owner = owners(self.plan(len(parties)), place).get((sender, series.stage))
        length = sizes.ids if owner is None or owner == place else sizes.lists.get(owner, MOST_IDS)
        signs = 0 if owner is None else length // 8
        return POINT_BYTES * min(length, MOST_IDS) + signs

    def row(self) -> MessageRow:
        """The row of the lists."""
        return MessageRow("blinded_ids", self.route, self.each_pass, self.points_of_ids, step="pass_ids")


def to_aligned(members: Members) -> Pairs:
    """Each party to each other with which it aligns its records."""
    return with_label_holder(members) if members.pairwise else to_each_other(members)


def to_the_next(members: Members) -> Pairs:
    """Each to the next, the last to the first; between the label holder and each other where it aligns with each."""
    if members.pairwise:
        return with_label_holder(members)
    parties = members.parties
    return [(parties[here], parties[there]) for here, there in _ring(len(parties))] if len(parties) > 1 else ()


def each_hop(sizes: JobSizes, sender: str, receiver: str) -> tuple[range, range]:
    """For each key as often as there are parties of one alignment."""
    return range(sizes.keys), range(len(sizes.members.aligned(sender, receiver)))


def each_key(sizes: JobSizes, _sender: str, _receiver: str) -> tuple[range, range]:
    """Once for each key of the parties' ids."""
    return range(sizes.keys), range(1)


# the mailbox allows for a short message
_DIGEST, _NUMBER = at_most(0, "A digest, and the number of records."), at_most(0, "A number of records.")
#: Method of record alignment → its contents; the first is the default.
ALIGNMENTS: Mapping[str, tuple[MessageRow, ...]] = {
    "psi": (
        MessageRow("alignment_key", to_aligned, each_key, at_most(0, "A point, and a switch."), step="blind_ids"),
        Passes(turns).row(),
        MessageRow(
            "sum_of_list",
            to_the_next,
            each_hop,
            at_most(
                lambda sizes: 128 * len(sizes.members.parties), "A point for each party, and a proof for each but one."
            ),
            step="prove_ids",
            by_tables=True,
        ),
        MessageRow("record_digest", to_label_holder, each_key, _DIGEST, step="match_ids"),
        MessageRow("agreed_ids", label_holder_reports, step="agree_ids"),
    ),
    "sorted-ids": (
        MessageRow("record_digest", to_label_holder, once, _DIGEST, step="send_digest"),
        MessageRow("record_digest", to_feature_parties, once, _DIGEST, step="compare_digests"),
    ),
}

_new = at_most(lambda sizes: POINT_BYTES * sizes.block, "A point for each new record of a block.")
_unshared = at_most(POINT_BYTES * MOST_IDS, "A point for each record of the sender that is not common.")
#: Of a prediction that serves with look-ups.
LOOK_UPS = (
    MessageRow("listed_ids", to_label_holder, once, _unshared, step="match_ids"),
    MessageRow("look_ups", to_feature_parties, each_round, _new, step="look_up"),
    MessageRow("looked_up", to_label_holder, each_round, _new, step="answer_look_ups"),
    MessageRow("found_records", label_holder_reports, step="look_up"),
)

_LEAST = MessageRow("least_count", to_each_other, once, _NUMBER, step="charge_preview")
#: Answer of a preview → its contents beside those of every job.
PREVIEWS: Mapping[str, tuple[MessageRow, ...]] = {
    "count": (
        _LEAST,
        Passes(count_turns).row(),
        MessageRow("shared_count", to_feature_parties, once, _NUMBER, step="count_ids"),
        MessageRow("counted_ids", label_holder_reports, step="count_ids"),
    ),
    "records": (_LEAST, *ALIGNMENTS["psi"], MessageRow("written_rows", all_report, step="write_rows")),
}
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
