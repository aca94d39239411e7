"""The turns of private set intersection, checked as a plan: every list meets every exponent, and comes back."""

from __future__ import annotations

import pytest

from treetap.protocols.alignment import POINT_BYTES, turns
from treetap.psi import group


@pytest.mark.parametrize("parties", [2, 3, 4, 5, 8])
def test_turns_are_numbered_and_name_parties(parties: int) -> None:
    """Levels count from 0 without a gap; places and routes name parties of the job only."""
    plan = turns(parties)
    assert [turn.stage for turn in plan] == list(range(len(plan)))
    for turn in plan:
        assert set(turn.places) <= set(range(parties))
        assert {place for route in turn.routes for place in route} <= set(turn.places)
        assert bool(turn.routes) == (turn.step == "pass_ids")


@pytest.mark.parametrize("parties", [3, 4, 5, 8])
def test_every_list_meets_every_exponent_once(parties: int) -> None:
    """Played with sets of names for exponents: what is compared in the end carries those of all parties, each once."""
    hand: dict[int, list[tuple[int, list[str]]]] = {place: [] for place in range(parties)}
    common: dict[int, list[str]] = {}
    for turn in turns(parties):
        if turn.step == "pass_ids":
            moved: dict[int, list[tuple[int, list[str]]]] = {place: [] for place in turn.places}
            for here, there in turn.routes:
                moved[there] += hand[here]
            hand |= moved
            continue
        for place in turn.places:
            if turn.step == "blind_ids":
                hand[place] = [(place, [f"first {place}"])]
            elif turn.step in ("relay_ids", "raise_ids"):
                ((owner, on),) = hand[place]
                hand[place] = [(owner, [*on, f"{'first' if turn.step == 'relay_ids' else 'fresh'} {place}"])]
            elif turn.step == "combine_ids":
                assert sorted(owner for owner, _ in hand[place]) == list(range(parties))
                everything = sorted(f"first {each}" for each in range(parties))
                assert all(sorted(on) == everything for _, on in hand[place])
                hand[place] = [(-1, [*everything[1:], "fresh 0"])]
            elif turn.step == "refresh_ids":
                ((_, on),) = hand[place]
                hand[place] = [(-1, [*(each for each in on if each != f"first {place}"), f"fresh {place}"])]
            elif turn.step == "trace_ids":
                ((_, common[place]),) = hand[place]
                hand[place] = [(place, [])]
            elif turn.step == "match_ids":
                ((owner, on),) = hand[place]
                assert owner == place
                assert sorted(on) == sorted(common[place])
    assert {tuple(sorted(each)) for each in common.values()} == {
        tuple(sorted(f"fresh {place}" for place in range(parties)))
    }


def test_a_list_is_as_long_as_its_points() -> None:
    """The bound of a list counts points of the group's encoding."""
    assert POINT_BYTES == group.POINT_BYTES
