"""Draws of a job on a lattice: seeds that its kernels get, times that a mask serves, and when seeds are forgotten."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.lattice_ways import take_way
from tests.many_workers import ManyWorkers
from tests.simulator import Federation, finished
from tests.worlds import assert_oracles_model, spec, world
from treetap.errors import Malformed, OutOfOrder
from treetap.lattice import histogram_key_holder, histogram_parameters, histogram_scheme, histogram_sets, histogram_sums
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_ways import Way
from treetap.party.growth import lattice_values
from treetap.party.growth.lattice_values import Query, WordsOfNodes
from treetap.party.growth.offered_candidates import Offer
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import exchange_pb2

#: Trees with more built nodes than one second half serves, and columns of two parties.
PARAMS = BoostingParams(n_estimators=2, max_depth=5, max_bin=4, min_child_weight=0.0)
HERE = world(90, (1, 2, 2), missing=0.1)


class Watched:
    """The kernels, which note by what each call draws."""

    def __init__(self) -> None:
        self._kernels = histogram_scheme.kernels()
        self.blocks: list[tuple[bytes, int]] = []  # (seed of a query, block) of words
        self.masks: list[tuple[bytes, int]] = []  # (seed, candidate) of u_k and e'
        self.floods: list[tuple[bytes, int]] = []
        self.widths: set[int] = set()
        self.served: Counter[bytes] = Counter()  # u_k → queries

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def encrypt(self, public: Any, first: int, secrets: Any, seed: bytes, moduli: Any, values: Any) -> Any:
        """Words of blocks."""
        self.blocks += [(seed, first + place) for place in range(len(public))]
        return self._kernels.encrypt(public, first, secrets, seed, moduli, values)

    def hide(self, sums: Any, zero: Any, bits: int, seed: bytes, first: int) -> Any:
        """Second halves."""
        self.masks += [(seed, first + place) for place in range(len(sums))]
        return self._kernels.hide(sums, zero, bits, seed, first)

    def answer(self, sums: Any, zero: Any, u: Any, flood: int, bits: int, seed: bytes, first: int) -> Any:
        """First halves."""
        self.floods += [(seed, first + place) for place in range(len(sums))]
        self.served.update(row.tobytes() for row in u)
        self.widths.add(flood)
        return self._kernels.answer(sums, zero, u, flood, bits, seed, first)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """The kernels of all parties of a process."""
    kernels = Watched()
    for module in (histogram_key_holder, histogram_sets, histogram_sums):
        monkeypatch.setattr(module, "kernels", lambda: kernels)
    return kernels


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("way", "told"), [(Way.QUERIES, 420), (Way.SETS, 420), (Way.SETS, 8)])
async def test_no_draw_is_used_twice(
    way: Way, told: int, watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of a query is encrypted once, a mask hides once and serves four queries, a flood is of one answer.

    Two of either would show differences of plaintexts, or of sets, or cancel the flood. Both workers of a party have
    draws of their own. By sets a mask serves once, and secrets some nodes; with 8 places that may be told, these are 3.
    """
    agreed: list[HistogramParameters] = []
    built: defaultdict[int, list[int]] = defaultdict(list)
    choose = HistogramParameters.choose

    def chosen(*args: Any, **more: Any) -> HistogramParameters:
        agreed.append(choose(*args, **more))
        return agreed[-1]

    def seen(sender: str, _: str, parcel: exchange_pb2.PeerMessage) -> None:
        if sender == "feature-b":
            built[parcel.round] += parcel.growth.candidate_sums.nodes

    monkeypatch.setattr(HistogramParameters, "choose", chosen)
    monkeypatch.setattr(histogram_parameters, "MOST_TOLD", told)
    take_way(monkeypatch, way)

    federation = Federation(tmp_path, HERE.tables, engine=lambda _: ManyWorkers(2))
    federation.tamper = seen
    finished(await federation.train(spec(PARAMS, len(HERE.blocks), scheme=LATTICE)))
    assert_oracles_model(federation.states, HERE.oracle(PARAMS))
    await federation.close()
    for draws in (watched.blocks, watched.masks, watched.floods):
        assert len(draws) >= 4
        assert not [draw for draw, times in Counter(draws).items() if times > 1]
    sizes = agreed[-1]
    assert watched.widths == {sizes.flood_bits}
    assert len(watched.served) == len(watched.masks)
    by_sets = way is Way.SETS
    assert max(watched.served.values()) == (1 if by_sets else 4)
    assert sizes.queries_per_second_half == 4
    serves = way.nodes_per_query(sizes)
    assert serves == {420: 177 if by_sets else 1, 8: 3}[told]
    nodes = [len(of_tree) for of_tree in built.values() if of_tree]
    assert min(nodes) > 4
    queries = {seed for seed, _ in watched.blocks}
    assert len(queries) == sum(-(-number // serves) for number in nodes)
    assert len(queries) * 2 == len(watched.blocks)  # one block of records, and one of zeros


async def test_a_querys_seed_is_forgotten_when_all_sums_are_opened(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the end of the tree: after each opening, the label holder keeps seeds that a party's sums still need."""
    kept: defaultdict[int, list[int]] = defaultdict(list)
    opened = WordsOfNodes.open_offer

    async def noted(self: WordsOfNodes, offer: Any) -> Any:
        for query in [self._queries[node] for node in offer.nodes]:
            assert offer.party in query.awaited
        sums = await opened(self, offer)
        kept[offer.stage].append(len(self._queries))
        assert all(query.awaited for query in self._queries.values())
        return sums

    monkeypatch.setattr(WordsOfNodes, "open_offer", noted)

    federation = Federation(tmp_path, HERE.tables)
    job = spec(replace(PARAMS, n_estimators=1), len(HERE.blocks), scheme=LATTICE)
    assert (await federation.train(job)).state == "finished"
    await federation.close()
    assert len(kept) > 2
    assert all(left[-1] == 0 for left in kept.values())
    assert any(left[0] for left in kept.values())


@pytest.mark.real_time
@pytest.mark.parametrize("end", ["close", "a refused opening"])
async def test_the_end_of_an_attempt_forgets_what_others_sums_still_need(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No seed of an open query is left, and no sum of another party is opened under it."""

    async def refused(*_: Any) -> Any:
        raise Malformed("no sum")

    values = WordsOfNodes(None, None, None, None)  # type: ignore[arg-type]
    values._queries[1] = Query(0, b"\x5a" * 32, {"feature-b"})
    values._shared = b"\x5a" * 32
    offer = Offer("feature-b", 0, 0, [1], 1, b"")
    if end == "close":
        await values.close()
    else:
        monkeypatch.setattr(WordsOfNodes, "_opened", refused)
        with pytest.raises(Malformed, match="no sum"):
            await values.open_offer(offer)
    assert not values._queries
    assert not values._shared
    with pytest.raises(OutOfOrder, match="whose secrets are forgotten are not opened"):
        await values.open_offer(offer)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("refuses", ["label-holder", "feature-b"])
async def test_the_ninth_attempt_is_refused(refuses: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ended those before: each party counts by itself, a feature party before it sends a sum."""
    if refuses != "label-holder":
        counted = lattice_values.parameters_of
        monkeypatch.setattr(
            lattice_values, "parameters_of", lambda *sizes, **more: counted(*sizes[:-2], 1, sizes[-1], **more)
        )

    def cut(sender: str, _: str, parcel: exchange_pb2.PeerMessage) -> None:
        if sender == "feature-c" and parcel.setup.seed_nonce.nonce:
            parcel.setup.seed_nonce.nonce = b""

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = cut
    status = await federation.train(spec(PARAMS, len(HERE.blocks), scheme=LATTICE))
    for _ in range(7):
        assert "the nonce of feature-c is not the one" in status.error
        status = await federation.resume()
    assert "the nonce of feature-c is not the one" in status.error
    federation.tamper, before = None, len(federation.log)
    status = await federation.resume()
    assert status.state == "failed"
    said = {message.word for message in federation.log[before:]} & {"candidate_count", "candidate_sums"}
    assert said == ({"candidate_count"} if refuses == "feature-b" else set())
    assert "attempt 9 of a job on a lattice: sums are hidden in 8 attempts together" in status.error
