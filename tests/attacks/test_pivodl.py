"""PIVODL's attacks on transcripts of federations, against what the centralised model says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tests.attacks.pivodl import PARAMS, found, labels_of, shared_world, trained, views
from tests.attacks.present import present
from tests.attacks.recorded import changed, rewritten, transcript
from tests.pivodl.federations import centralised, job_of, transparent
from tests.pivodl.jobs import policies
from tests.simulator import Federation, run
from tests.worlds import World
from treetap.attacks.pivodl.evidence import SharedLabelEvidence, counted, recovered
from treetap.attacks.pivodl.label_guess import label_guess
from treetap.attacks.pivodl.solved_gains import SolvedGains
from treetap.attacks.scores import UNKNOWN
from treetap.attacks.view.pivodl_view import PivodlTree, PivodlView
from treetap.attacks.view.view import View, read_view
from treetap.errors import Malformed
from treetap.party.pivodl.division import Source
from treetap.trees.candidates import column_goes_left
from treetap.trees.centralised_pivodl import CentralPivodlModel
from treetap.trees.loss import UNIT
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.pivodl_rules import RoleDraws, barred, gains_of
from treetap.wire.frame import content_of
from treetap.wire.records import chunks_of
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

pytestmark = [pytest.mark.filterwarnings("ignore:a 512-bit"), pytest.mark.xdist_group("pivodl-views")]
NOISED = replace(PARAMS, epsilon=8.0)
Seen = tuple[World, CentralPivodlModel, dict[str, Path], dict[str, View]]


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A job without noise."""
    here = shared_world()
    states = trained(tmp_path_factory.mktemp("exact"), here, PARAMS)
    return here, centralised(here, PARAMS), states, views(states)


@pytest.fixture(scope="module")
def noised(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, dict[str, View]]:
    """A job with noise; both directions are recorded."""
    here = shared_world(seed=4)
    return here, views(trained(tmp_path_factory.mktemp("noised"), here, NOISED, record="both"))


def _members(here: World, model: CentralPivodlModel, t: int) -> dict[int, Any]:
    """The records of every node of a tree."""
    rows = {1: np.arange(len(here.y))}
    blocks = dict(here.parties)
    for node, split in sorted(model.trees[t].splits.items()):
        here_rows = rows[node]
        values = blocks[split.source][here_rows, split.candidate.feature]
        left = np.where(np.isnan(values), split.candidate.missing_left, values < split.threshold)
        rows[2 * node], rows[2 * node + 1] = here_rows[left], here_rows[~left]
    return rows


def _trees(view: View) -> tuple[PivodlTree, ...]:
    return present(view.pivodl).trees


def test_a_view_is_what_the_model_says(exact: Seen) -> None:
    """Shape, known records, sums and weights of every party are those of the centralised model; none is missing."""
    here, model, _, seen = exact
    for name, view in seen.items():
        assert view.party == name
        assert {party: rows.tolist() for party, rows in present(view.pivodl).ownership.items()} == {
            party: rows.tolist() for party, rows in here.ownership.items()
        }
        scores = np.tile(model.loss.base, (len(here.y), 1))
        for t, tree in enumerate(_trees(view)):
            rows, true = _members(here, model, t), model.trees[t]
            assert {node: split.source for node, split in tree.splits.items()} == {
                node: split.source for node, split in true.splits.items()
            }
            assert tree.leaves == sorted(true.leaves)
            gradients = model.loss.gradients(scores, here.y)
            for node, known in tree.view.nodes.items():
                assert known.records.tolist() == rows[node].tolist()
            for node, sums in tree.sums.items():
                assert sums.tolist() == gradients[rows[node]].sum(axis=0).tolist()
            for (node, source), gain in tree.gains.items():
                if source == true.splits[node].source:
                    assert gain == true.splits[node].gain
            assert all(weight.exact for weight in tree.weights.values())
            assert {leaf: weight.value.tolist() for leaf, weight in tree.weights.items()} == {
                leaf: true.leaves[leaf].tolist() for leaf in tree.weights
            }
            # a weight is missing only where this party keeps it
            for leaf in set(tree.leaves) - set(tree.weights):
                assert tree.splits[leaf >> 1].source != name
                assert tree.splits[leaf >> 1].opener in (None, name)
            for leaf, weight in true.leaves.items():
                scores[rows[leaf]] += weight


def test_a_guess_adds_up_what_was_received(exact: Seen) -> None:
    """Definition 9 by loops: of each record of other parties the weights of the leaves in which it is known to be."""
    here, model, _, seen = exact
    results = found(here, seen)
    for name, view in seen.items():
        sums: dict[int, float] = {}
        for t, tree in enumerate(_trees(view)):
            for leaf in tree.weights:
                known = tree.view.nodes.get(leaf)
                for record in [] if known is None else known.records.tolist():
                    if record not in here.ownership[name]:
                        sums[record] = sums.get(record, 0.0) + float(model.trees[t].leaves[leaf][0])
        guess = results[name]["label_guess"]
        truth = {record: int(here.y[record]) for record in sums}
        assert guess["records"] == len(sums)
        assert guess["others"] == len(here.y) - len(here.ownership[name])
        if not sums:
            assert guess["accuracy"] is guess["auc"] is None
            continue
        right = [int(value > 0) == truth[record] for record, value in sums.items()]
        assert guess["accuracy"] == pytest.approx(np.mean(right))
        assert guess["inverted"] == pytest.approx(1 - np.mean(right))
        ones = [value for record, value in sums.items() if truth[record]]
        others = [value for record, value in sums.items() if not truth[record]]
        pairs = [(one > other) + 0.5 * (one == other) for one in ones for other in others]
        assert guess["auc"] == pytest.approx(np.mean(pairs))
        assert guess["exact"] is guess["without_noise"] is guess["after_inversion"] is None
    # the party whose splits end the most trees reads the labels of others from the weights
    assert max(each["label_guess"]["auc"] for each in results.values() if each["label_guess"]["as_source"]["auc"]) > 0.6


@pytest.mark.second_tier
def test_noise_comes_with_the_weights_of_own_splits_alone(noised: tuple[World, dict[str, View]]) -> None:
    """Every other weight is exact, and the same at all parties; the guess without noise is that by exact weights."""
    here, seen = noised
    results = found(here, seen)
    sums = {name: np.zeros(len(here.y)) for name in seen}
    for t in range(NOISED.n_estimators):
        exact_weights: dict[int, set[float]] = {}
        for name, view in seen.items():
            tree = _trees(view)[t]
            for leaf, weight in tree.weights.items():
                assert weight.exact == (tree.source_above(leaf) != name)
                if weight.exact:
                    exact_weights.setdefault(leaf, set()).add(float(weight.value[0]))
        assert all(len(values) == 1 for values in exact_weights.values())
        for name, view in seen.items():
            for leaf in _trees(view)[t].weights:
                if leaf in _trees(view)[t].view.nodes:
                    sums[name][_trees(view)[t].view.nodes[leaf].records] += exact_weights[leaf].copy().pop()
    for name, result in results.items():
        guess = result["label_guess"]
        others = np.setdiff1d(np.flatnonzero(sums[name]), here.ownership[name])
        assert guess["without_noise"]["records"] == guess["records"] == len(others)
        if len(others):
            right = (sums[name][others] > 0) == (here.y[others] == 1)
            assert guess["without_noise"]["accuracy"] == pytest.approx(right.mean())


@pytest.mark.second_tier
def test_announced_gains_give_exact_weights(noised: tuple[World, dict[str, View]]) -> None:
    """What is solved is right, and takes the noise from weights; most of the first tree is solved.

    Where both sides have as many records there are two solutions, one of which own labels make likelier.
    """
    here, seen = noised
    exact = {
        (tree.view.index, leaf): weight.value
        for view in seen.values()
        for tree in _trees(view)
        for leaf, weight in tree.weights.items()
        if weight.exact
    }
    solved = tried = removed = 0
    for name, result in found(here, seen).items():
        figures = result["gain_inversion"]
        assert figures["exact"] == figures["solved"]
        first = figures["by_tree"][0]
        solved, tried, removed = solved + first["solved"], tried + first["tried"], removed + figures["noise_removed"]
        inversion = SolvedGains(present(seen[name].pivodl), len(here.y), here.y.astype(np.int64))
        for tree in inversion.trees:
            for leaf, weight in tree.weights.items():
                assert weight.tolist() == exact[tree.index, leaf].tolist()
    assert solved >= 0.9 * tried > 0
    assert removed > 0


@pytest.mark.parametrize(("sizes", "expected"), [((50, 60), [10]), ((50, 50), [10, 30])])
def test_sides_of_one_size_have_two_solutions(exact: Seen, sizes: tuple[int, int], expected: list[int]) -> None:
    """10 and 30 records of the second class on two sides: their sums can change places if the sides are as large."""
    here, _, _, seen = exact
    view = present(next(iter(seen.values())).pivodl)
    left, right = (
        np.array([size * UNIT // 2 - positives * UNIT, size * UNIT // 4])
        for size, positives in zip(sizes, (10, 30), strict=True)
    )
    gain = int(gains_of(left[np.newaxis], left + right, 1.0, PARAMS)[0])
    inversion = SolvedGains(view, len(here.y))
    found = inversion._solutions(left + right, gain, inversion.negative(np.arange(sizes[0]), np.zeros(sizes[0])))
    assert [positives for positives, _ in found] == expected


def test_nearly_every_node_of_a_first_tree_has_one_solution() -> None:
    """Of random nodes, from 40 to 24,000 records with any shares of the second class, none is solved wrongly."""
    view = PivodlView("a", ["a", "b"], PivodlParams(), {}, {}, 0, ())
    inversion, rng = SolvedGains(view, 1), np.random.default_rng(0)
    right = 0
    for _ in range(400):
        size = int(np.exp(rng.uniform(np.log(40), np.log(24_000))))
        here = int(rng.integers(20, size - 19))
        sizes = (here, size - here)
        positives = [int(rng.binomial(each, rng.uniform(0.02, 0.6))) for each in sizes]
        left, other = (
            np.array([each * UNIT // 2 - few * UNIT, each * UNIT // 4])
            for each, few in zip(sizes, positives, strict=True)
        )
        gain = int(gains_of(left[np.newaxis], left + other, 1.0, view.params)[0])
        negative = inversion.negative(np.arange(here), np.zeros(here))
        found = [count for count, _ in inversion._solutions(left + other, gain, negative)]
        assert positives[0] in found
        right += len(found) == 1
    assert right >= 0.95 * 400


@pytest.mark.second_tier
def test_without_announced_gains_nothing_is_solved(exact: Seen, tmp_path: Path) -> None:
    """As with a secure comparison: the attack has no equation, and says so."""
    here, _, states, _ = exact

    def quiet(records: list[TranscriptRecord]) -> Iterator[TranscriptRecord]:
        return (record for record in records if record.step != "best_gains")

    for name in states:
        view = read_view(rewritten(transcript(states, name), tmp_path / name, quiet), party=name)
        result = found(here, {name: view})[name]["gain_inversion"]
        assert (result["announced"], result["tried"], result["solved"], result["noise_removed"]) == (0, 0, 0, 0)


def test_a_secure_comparison_leaves_no_gain_in_any_transcript(tmp_path: Path) -> None:
    """Also where a party records what it sends; the other attacks read the transcripts all the same."""
    here = shared_world(120, 3)
    params = replace(NOISED, n_estimators=1, max_depth=2, max_bin=4, gain_comparison="secure")
    seen = views(trained(tmp_path, here, params, record="both"))
    for name, result in found(here, seen).items():
        figures = result["gain_inversion"]
        assert figures["possible"] is False
        assert (figures["announced"], figures["solved"], figures["noise_removed"]) == (0, 0, 0)
        assert figures["splits"] > 0
        assert not any(tree.gains for tree in _trees(seen[name]))
        assert result["disclosed"]["bins"] == 4 * len(here.ownership[name])


def test_disclosed_bins_and_ids(exact: Seen) -> None:
    """Bins of the own labelled records by all other columns; records of nodes that may be split; sums for leaves."""
    here, model, _, seen = exact
    rows = [_members(here, model, t) for t in range(PARAMS.n_estimators)]
    for name, result in found(here, seen).items():
        counts = result["disclosed"]
        columns = sum(block.shape[1] for party, block in here.parties if party != name)
        assert counts["bins"] == columns * len(here.ownership[name]) == sum(counts["bins_from"].values())
        told = [
            (t, node)
            for t, tree in enumerate(model.trees)
            for node in tree.divisible - {1}
            if tree.splits[node >> 1].source != name
        ]
        assert counts["continuing_nodes"] == len(told)
        assert counts["continuing_ids"] == sum(len(rows[t][node]) for t, node in told)
        assert counts["leaves"] == sum(len(tree.leaves) for tree in model.trees)
        assert counts["leaves_as_source"] == sum(
            tree.splits[leaf >> 1].source == name for tree in model.trees for leaf in tree.leaves
        )
        assert counts["barred"] == sum(_is_barred(name, tree, node) for tree in model.trees for node in tree.divisible)


def _is_barred(name: str, tree: Any, node: int) -> bool:
    level = node.bit_length()
    leaves = [
        leaf
        for leaf in tree.leaves
        if leaf.bit_length() < level or (leaf.bit_length() == level and leaf not in tree.divisible)
    ]
    return name in barred(node, {split: it.source for split, it in tree.splits.items()}, leaves)


@pytest.mark.second_tier
def test_sums_to_all_parties_give_sources_exact_weights(tmp_path: Path) -> None:
    """As published: more sources know exact weights of their leaves, and the audit counts them."""
    here = shared_world(200, seed=4)
    counts = []
    few = replace(NOISED, n_estimators=2, max_bin=4, gamma=4.0)  # nodes that may be split, and have no split
    for number, params in enumerate([few, replace(few, as_published=True)]):
        seen = views(trained(tmp_path / str(number), here, params))
        counts.append(sum(each["disclosed"]["exact_weight_known"] for each in found(here, seen).values()))
    assert counts[0] < counts[1]


def test_a_transcript_has_no_sums_for_the_differential_attack(exact: Seen) -> None:
    """An honest run: no party opens its own candidates, and the sets with sums are too large to show a label."""
    here, _, _, seen = exact
    for result in found(here, seen).values():
        figures = result["differential"]
        assert (figures["opened_by_source"], figures["labels"]) == (0, 0)
        assert figures["smallest_set"] is None or figures["smallest_set"] >= PARAMS.min_samples


def _other_records(message: Any) -> None:
    del message.protocol.pivodl.labelled_records.chunks[:]
    message.protocol.pivodl.labelled_records.chunks.extend(chunks_of(np.arange(400), 400))


BENT: dict[str, Callable[[Any], object]] = {
    "leaf_weights": lambda it: content_of(it, "leaf_weights").leaves[0].weight.append(1.0),
    "node_sums": lambda it: content_of(it, "node_sums").nodes[0].sums.append(1),
    "divided_nodes": lambda it: setattr(content_of(it, "divided_nodes").nodes[0], "node", 1 << 40),
    "labelled_records": _other_records,
}


@pytest.mark.parametrize("kind", BENT)
def test_a_transcript_that_contradicts_itself_is_refused(exact: Seen, tmp_path: Path, kind: str) -> None:
    """Whatever a message says, the audit ends with the fault of the transcript."""
    _, _, states, _ = exact
    name = next(iter(states))
    with pytest.raises(Malformed):
        read_view(rewritten(transcript(states, name), tmp_path / "bent", changed(kind, BENT[kind])), party=name)


def _opened_candidates(folder: Path, here: World, *, forced: bool) -> list[tuple[int, list[tuple[Any, Any]]]]:
    """What each source can open of its root candidates with its own key: records and sums, a chain for each column.

    `forced`: a draw names the source itself as its split party.
    """
    chains: list[tuple[int, list[tuple[Any, Any]]]] = []
    original = Source._forwarded

    async def spied(self: Source, node: int, to: str, mine: Any, shares: Any) -> Any:
        parts = await original(self, node, to, mine, shares)
        if self._tree.index == 0 and node == 1:
            offered, columns = self._offered[node], self._columns
            packed = b"".join(part.ciphertexts for part in parts)
            try:
                sums = await self._keys.holder.open(packed, len(offered))
            except Exception:  # noqa: BLE001 - sums under another key are no numbers for this one
                sums = np.full((len(offered), 2), 1 << 60)
            by_column: dict[int, list[tuple[Any, Any]]] = {}
            for place in np.argsort(offered):
                candidate = columns.candidates.at(int(offered[place]))
                bins = columns.candidates.shapes[candidate.feature].n_bins
                left = column_goes_left(columns.codes[:, candidate.feature], candidate, bins)
                by_column.setdefault(candidate.feature, []).append((np.flatnonzero(left), sums[place]))
            chains.extend((self._me.parties.index(self._me.name), chain) for chain in by_column.values())
        return parts

    async def main() -> None:
        job = job_of(here, replace(PARAMS, n_estimators=1, max_bin=200, instance_threshold=1, min_samples=1))
        federation = Federation(folder, here.tables, policies=policies(job))
        await federation.train(job)  # a party that is its own split party sends nothing to itself: the job fails
        await federation.close()

    def drawn(self: RoleDraws, tree: int, node: int, source: str, barred: Any) -> str:
        del self, tree, node, barred
        return source

    with patch.object(Source, "_forwarded", spied), transparent():
        if forced:
            with patch.object(RoleDraws, "split_party", drawn):
                run(main())
        else:
            run(main())
    return chains


@pytest.mark.parametrize("forced", [True, False])
def test_the_differential_attack_needs_a_source_that_is_its_own_split_party(forced: bool, tmp_path: Path) -> None:
    """Forced, the labels of other parties follow from sums of consecutive candidates; as drawn, none does."""
    here = shared_world(90, 3, seed=5)
    chains = _opened_candidates(tmp_path, here, forced=forced)
    assert {party for party, _ in chains} == {0, 1, 2}
    labels = np.full(len(here.y), UNKNOWN)
    for party, chain in chains:
        first = np.full((1, 2), UNIT // 2)  # g of a negative at the base score
        counts = [counted(rows, sums, first.repeat(len(rows), axis=0)) for rows, sums in chain]
        if None in counts:
            continue
        # The sets between consecutive ones of a chain, each of which holds the one before it.
        nested = [each for each in counts if each is not None]
        between = list(nested[:1])
        for (inner, few), (outer, more) in pairwise(nested):
            between.append((np.setdiff1d(outer, inner, assume_unique=True), more - few))
        shown = recovered(between, len(here.y))
        others = (shown != UNKNOWN) & (present(here.owners) != party)
        labels[others] = shown[others]
    shown = labels != UNKNOWN
    if forced:
        assert shown.sum() > 60
        assert (labels[shown] == here.y[shown]).all()
    else:
        assert not shown.any()


@pytest.mark.second_tier
def test_a_verdict_compares_the_best_guess_after_any_tree(noised: tuple[World, dict[str, View]]) -> None:
    """Of all records of others, either way round, beside their most frequent class and a model of own columns."""
    here, seen = noised
    blocks = dict(here.parties)
    for name, view in seen.items():
        evidence = SharedLabelEvidence(present(view.pivodl), view.records, blocks[name], labels_of(here))
        guess = label_guess(evidence)
        (compared,) = evidence.compared
        assert compared.measure == "accuracy"
        alone = present(guess.own_labels_and_columns)
        assert compared.before == pytest.approx(
            max(present(alone.majority), present(alone.accuracy), 1 - present(alone.accuracy))
        )
        whole = [it for it in (guess, guess.own_labels_and_spaces) if it is not None and it.records == guess.others]
        reached = [max(it.accuracy, 1 - it.accuracy) for it in whole if it.accuracy is not None]
        assert compared.reached >= max(reached) - 1e-12
        assert compared.after >= compared.before
