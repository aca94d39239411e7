"""The turns of private set intersection, for coordinator and parties alike (docs/alignment.md).

Computing and sending are turns of their own: a party that still computes sends nothing to its peers but reports to the
coordinator, and in a pass every party reads while it sends, whatever the length of the lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

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


def turns(parties: int) -> list[AlignmentTurn]:
    """All turns in order; places are those of the job's parties, the label holder's is 0. One party has none."""
    if parties == 1:
        return []
    return _between_two() if parties == 2 else _around_a_ring(parties)


def owners(parties: int, place: int) -> dict[tuple[int, int], int | None]:
    """Whose list comes to a place, by (from, stage); None: the list of common points."""
    found: dict[tuple[int, int], int | None] = {}
    held: dict[int, int | None] = {}
    for turn in turns(parties):
        if turn.step in ("blind_ids", "trace_ids"):
            held = {each: each for each in range(parties)}
        elif turn.step == "combine_ids":
            held = {0: None}
        elif turn.routes:
            found |= {(here, turn.stage): held[here] for here, there in turn.routes if there == place != here}
            held = {there: held[here] for here, there in turn.routes}
    return found


def _between_two() -> list[AlignmentTurn]:
    """Each blinds its ids; each raises the other's and returns them; each names its common records; they agree."""
    both, swap = (0, 1), ((0, 1), (1, 0))
    return [
        AlignmentTurn("blind_ids", 0, both),
        AlignmentTurn("pass_ids", 1, both, swap),
        AlignmentTurn("raise_ids", 2, both),
        AlignmentTurn("pass_ids", 3, both, swap),
        AlignmentTurn("match_ids", 4, both),
        AlignmentTurn("agree_ids", 5, (0,)),
    ]


def _around_a_ring(parties: int) -> list[AlignmentTurn]:
    """Three and more.

    1. Every list goes around, raised and shuffled by each; all end at the first party, which keeps the points that all
       hold.
    2. The common points go around once more, for fresh exponents, shuffled by each; the last party sends them to all.
    3. Every owner's list goes around under the fresh exponents, its order kept, back to its owner alone.
    4. The first party compares the results of all.
    """
    places, last = tuple(range(parties)), parties - 1
    ring = tuple((place, (place + 1) % parties) for place in places)
    number = count()
    found = [AlignmentTurn("blind_ids", next(number), places)]
    for _ in range(last):
        found.append(AlignmentTurn("pass_ids", next(number), places, ring))
        found.append(AlignmentTurn("relay_ids", next(number), places))
    found.append(AlignmentTurn("pass_ids", next(number), places, tuple((place, 0) for place in places)))
    found.append(AlignmentTurn("combine_ids", next(number), (0,)))
    for place in places[1:]:
        found.append(AlignmentTurn("pass_ids", next(number), (place - 1, place), ((place - 1, place),)))
        found.append(AlignmentTurn("refresh_ids", next(number), (place,)))
    found.append(AlignmentTurn("pass_ids", next(number), places, tuple((last, place) for place in places)))
    found.append(AlignmentTurn("trace_ids", next(number), places))
    for _ in range(last):
        found.append(AlignmentTurn("pass_ids", next(number), places, ring))
        found.append(AlignmentTurn("raise_ids", next(number), places))
    found.append(AlignmentTurn("pass_ids", next(number), places, ring))
    found.append(AlignmentTurn("match_ids", next(number), places))
    found.append(AlignmentTurn("agree_ids", next(number), (0,)))
    return found
