"""Boosting with sums on a lattice, and what it draws.

- Sums on a lattice, by either way: every feature of boosting finds a naive trainer's model on the joined table.
- Draws of a job on a lattice: seeds that its kernels get, times that a mask serves, and when seeds are forgotten.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.boosting import test_base_model, test_categories, test_protocol
from tests.defences import test_label_dp, test_released_sets, test_repair
from tests.growth import test_cell_merging, test_eval_table, test_expansion, test_monotone, test_small_spaces
from tests.lattice_ways import carry_out, in_own_loop, instances, take_way
from tests.prediction import test_grafted
from tests.simulator import Federation, finished
from tests.worlds import World, assert_oracles_model, manifest, spec, world
from treetap.errors import Malformed, OutOfOrder
from treetap.lattice import histogram_key_holder, histogram_parameters, histogram_scheme, histogram_sets, histogram_sums
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import parameters_of
from treetap.lattice.histogram_ways import Way
from treetap.party.boosting.ciphers import layout
from treetap.party.growth import lattice_values
from treetap.party.growth.lattice_values import Query, WordsOfNodes
from treetap.party.growth.offered_candidates import Offer
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, setup_pb2
from treetap.workers.engines import Engine

#: Every shape of a world, and every objective with some of them.
SHAPES = list(zip(reversed(test_protocol.SHAPES), cycle(test_protocol.OBJECTIVES), strict=False))
SMALL = BoostingParams(n_estimators=2, max_depth=3, max_bin=8, min_child_weight=0.1)
#: Trees with more built nodes than one second half serves, and columns of two parties.
PARAMS = BoostingParams(n_estimators=2, max_depth=5, max_bin=4, min_child_weight=0.0)
HERE = world(90, (1, 2, 2), missing=0.1)


def _of_two_values(here: World) -> World:
    """The world in which a feature party's columns have two values, or one and missing ones."""
    columns, content = here.tables["feature-b"]
    blocks = [block.copy() for block in here.blocks]
    blocks[1][:, 0], blocks[1][:, 1] = here.y, np.where(np.arange(len(here.y)) % 3, 2.0, np.nan)
    table = content["train"]
    rows = [int(name[1:]) for name in table.column("id").to_pylist()]
    for place, name in enumerate(columns[:2]):
        table = table.set_column(table.column_names.index(name), name, [blocks[1][rows, place]])
    tables = {**here.tables, "feature-b": (columns, {**content, "train": table})}
    return replace(here, tables=tables, blocks=blocks)


@dataclass(frozen=True)
class Case:
    """A world, and the parameters that are tried on it."""

    params: BoostingParams
    world: Callable[[], World]


CASES = {
    "second halves that are drawn anew": Case(
        replace(SMALL, max_depth=6, max_bin=4, min_child_weight=0.0), partial(world, 90, (1, 2, 2), missing=0.1)
    ),
    "columns with one candidate": Case(replace(SMALL, max_bin=2), lambda: _of_two_values(world(60, (1, 2, 1), seed=3))),
    "no party has candidates": Case(SMALL, partial(world, 40, (2, 0, 0))),
    "two blocks of records": Case(
        replace(SMALL, max_bin=3, max_depth=2, n_estimators=1, subsample=0.99), partial(world, 4_200, (1, 1, 1))
    ),
    "four parties": Case(SMALL, partial(world, 80, (1, 2, 2, 2), missing=0.1)),
    "many classes in vector leaves": Case(
        replace(SMALL, objective="multi:softprob", multi_strategy="multi_output_tree", n_estimators=1),
        partial(world, 120, (1, 2, 2), objective="multi:softprob", classes=5),
    ),
    "words by the dozen": Case(
        replace(
            SMALL,
            objective="multi:softprob",
            multi_strategy="multi_output_tree",
            n_estimators=1,
            max_depth=2,
            max_bin=4,
        ),
        partial(world, 400, (1, 2, 1), objective="multi:softprob", classes=22),
    ),
    "as many bins as there may be": Case(
        replace(SMALL, max_bin=255, max_depth=1, n_estimators=1), partial(world, 300, (0, 1), missing=0.1)
    ),
}


async def _trained(folder: Path, here: World, params: BoostingParams) -> set[int]:
    """The stages of trees at which words are sent in a training that finds the oracle's model."""
    federation, stages = Federation(folder, here.tables), set[int]()

    def seen(_: str, __: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) == "encrypted_words":
            stages.add(parcel.stage)
        return parcel

    federation.tamper = seen
    finished(await federation.train(spec(params, len(here.blocks), scheme=LATTICE)))
    oracle = here.oracle(params)
    assert_oracles_model(federation.states, oracle)
    assert manifest(federation.state("label-holder"))["best_round"] == oracle.best_round
    await federation.close()
    return stages


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("case", "way"), list(product(CASES, Way)))
async def test_the_federation_finds_the_oracles_model(
    case: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deep trees, few bits, blocks of records, many classes, columns with one candidate or none."""
    params, here = CASES[case].params, CASES[case].world()
    chosen = take_way(monkeypatch, way)

    stages = await _trained(tmp_path, here, params)
    assert stages == {0} if way is Way.SETS else stages >= {0, min(1, params.max_depth - 1)}
    assert set(chosen) == {way}


def test_words_by_the_dozen_serve_one_query() -> None:
    """A second query would show too much of a mask."""
    many = CASES["words by the dozen"].params
    sizes = parameters_of(400, layout(many, 400, many.outputs_per_tree(22)), many.max_bin, 8, 2, 1)
    assert (sizes.words >= 40, sizes.queries_per_second_half) == (True, 1)


# ---- each objective and shape of `test_protocol`, and tests of features, once more


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("shape", "objective"), SHAPES)
@pytest.mark.parametrize("way", Way)
def test_worlds_of_every_shape(
    way: Way, shape: str, objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests of the other schemes."""
    take_way(monkeypatch, way)
    feature = test_protocol.test_the_federation_finds_and_uses_the_oracles_model
    in_own_loop(feature, {"objective": objective, "shape": shape, "scheme": LATTICE}, tmp_path, monkeypatch)


#: Tests of features, in which jobs that name no scheme train on a lattice here.
FEATURES: tuple[Callable[..., Any], ...] = (
    test_base_model.test_a_continued_model_is_the_oracles,
    test_base_model.test_splits_of_categories_are_continued,
    test_categories.test_the_model_is_the_oracles,
    test_categories.test_a_party_that_sits_out_and_records_withheld,
    test_eval_table.test_the_model_is_that_of_the_training_and_the_metrics_those_of_the_eval_table,
    test_expansion.test_the_federation_finds_the_oracles_trees_in_their_order,
    test_monotone.test_the_federation_finds_and_uses_the_oracles_model,
    test_monotone.test_bounds_hold_in_subtrees_that_the_label_holder_grows_alone,
    test_monotone.test_partitions_of_categories_beside_constraints,
    test_label_dp.test_the_model_is_that_of_the_noisy_labels,
    test_released_sets.test_the_federation_finds_the_oracles_trees_and_shows_no_more,
    test_repair.test_a_federation_repairs_as_the_joined_table_does,
    test_grafted.test_every_way_gives_a_record_the_value_of_its_subtree,
    test_cell_merging.test_the_federation_finds_the_joined_tables_trees,
    test_small_spaces.test_no_party_knows_a_node_smaller_than_the_policy_says,
)


@pytest.mark.second_tier
@pytest.mark.parametrize(("feature", "given"), list(instances(FEATURES, of_forests=False)))
@pytest.mark.parametrize("way", Way)
def test_features(
    way: Way, feature: Callable[..., Any], given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models, metrics and what is shown are those that the feature has under the other schemes."""
    chosen = carry_out(feature, given, way, tmp_path, monkeypatch)
    assert way in chosen or feature is test_cell_merging.test_the_federation_finds_the_joined_tables_trees


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

    federation = Federation(tmp_path, HERE.tables, engine=lambda _: Engine(2))
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

    context: Any = SimpleNamespace(held=AsyncExitStack())
    values = WordsOfNodes(context, setup_pb2.JobSpec(), None, None)  # type: ignore[arg-type]
    values._queries[1] = Query(0, b"\x5a" * 32, {"feature-b"})
    values._shared = b"\x5a" * 32
    offer = Offer("feature-b", 0, 0, [1], 1, b"")
    if end == "close":
        await context.held.aclose()
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
