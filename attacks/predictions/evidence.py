"""The attacks on scores of predictions, and their evidence: whole sums, and leaves that records can have reached."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.attacks.files import ScoredPrediction
from treetap.attacks.predictions.decoding import MaskedTree, decode_paths, invert, possible_leaves
from treetap.attacks.published.schema import DecodedPaths, DecodingSettings, InvertedWeights
from treetap.attacks.view.kept_messages import located
from treetap.attacks.view.own_table import model_table
from treetap.attacks.view.pivodl_view import PivodlView
from treetap.attacks.view.received_rows import attack_draws, some_of
from treetap.attacks.view.replay import TranscriptReplay, read_replay
from treetap.attacks.view.view import read_view
from treetap.errors import BadInput, Malformed
from treetap.models.own_split import OwnSplit, ValuedTrees, valued_trees
from treetap.models.store import VALUES, read_model, read_repaired
from treetap.protocols.registry import prediction_name
from treetap.tables.config import TableConfig
from treetap.tables.opening import columns_of
from treetap.tables.reading import Table, read_table
from treetap.trees.ensemble import ROOT, Ensemble, Split
from treetap.trees.leaf_entries import LeafEntries
from treetap.trees.paths import candidate_leaves, output_bits
from treetap.wire.frame import content_of
from treetap.wire.records import unpack_bits
from treetap.wire.v2 import prediction_pb2

Place = tuple[int, int]


def arrivals(replay: TranscriptReplay, records: int) -> dict[Place, Bools]:
    """(tree, node) → (n,) records that arrived there, of the nodes of the transcript's party below others' splits.

    Raises:
        Malformed: messages of the prediction are of other records.
    """
    arrived: dict[Place, Bools] = {}
    for message in replay.arrived:
        block = replay.openings[message.attempt].block or records
        if (first := message.round * block) >= records:
            raise Malformed(f"block {message.round} is beyond the {records} records")
        content: Any = content_of(message, "arrived_records")
        last = min(first + block, records)
        for it in content.nodes:
            here = arrived.setdefault((it.tree, it.node), np.zeros(records, dtype=bool))
            here[first:last] = unpack_bits(it.records, last - first)
    return arrived


def recipient_trees(
    view: PivodlView,
    shard: Sequence[Mapping[str, Any]],
    arrived: Mapping[Place, Bools],
    features: Floats,
    fraction: int,
) -> list[MaskedTree]:
    """The trees as the recipient knows them.

    Args:
        view: of its transcript of the training.
        shard: the lines of its own model, tree by tree.
        features: (n, d) its own columns of the scored records, in the order of the blocks, NaN where missing.
        fraction: binary places of weights and scores.
    """
    trees = []
    for t, (line, tree) in enumerate(zip(shard, view.trees, strict=True)):
        kept = {leaf["node"]: np.array(leaf["weight"]) for leaf in line["weights"]}
        received = {leaf: weight.value for leaf, weight in tree.weights.items() if weight.exact}
        exact = {leaf: np.rint(value * 2.0**fraction).astype(np.int64) for leaf, value in (received | kept).items()}
        leaves = np.array(tree.leaves, dtype=np.int64)
        known = np.array([leaf in exact for leaf in tree.leaves])
        nothing: Ints = np.zeros(view.params.width, dtype=np.int64)
        seen, lefts = _own_ways(t, line, arrived, features, set(kept))
        trees.append(
            MaskedTree(
                leaves,
                possible_leaves(leaves, seen, lefts, len(features)),
                np.stack([exact.get(leaf, nothing) for leaf in tree.leaves]),
                known,
            )
        )
    return trees


def _own_ways(
    t: int, line: Mapping[str, Any], arrived: Mapping[Place, Bools], features: Floats, kept: set[int]
) -> tuple[dict[int, Bools], dict[int, Bools]]:
    """Own node or kept leaf → the records that arrive; own split → those that go left."""
    seen: dict[int, Bools] = {}
    lefts: dict[int, Bools] = {}
    splits = {split.node: split for split in map(OwnSplit.from_dict, line["splits"])}
    for node in sorted(splits.keys() | kept):
        above = node >> 1
        if node == ROOT:
            seen[node] = np.ones(len(features), dtype=bool)
        elif above in lefts:  # its own split passes records on to itself
            seen[node] = seen[above] & (lefts[above] if node % 2 == 0 else ~lefts[above])
        else:
            seen[node] = arrived[t, node]
        if node in splits:
            lefts[node] = splits[node].goes_left(features[:, splits[node].feature])
    return seen, lefts


#: Predictions whose label holder opens encrypted sums, and those whose recipient adds masked ones.
ENCRYPTED, MASKED = ("eini", "lattice"), ("masked",)
#: Binary places of weights and scores of masked sums.
MASKED_PLACES = 40
#: Largest number of which half a unit is still told apart in a score of 64-bit floating point.
_MOST = 2.0**52


@dataclass(frozen=True)
class ScoreEvidence:
    """All that the attacks on one prediction use.

    Attributes:
        trees: as the recipient knows them, with the n records that were scored.
        sums: (n, outputs) of leaf weights, whole numbers in units of the fixed point.
        output_bits: log2 of the sums that the trees can have, where all weights are known.
        reasons: attack → why it cannot run, which attacks write down.
    """

    job: str
    model: str
    recipient: str
    protocol: str
    trees: Sequence[MaskedTree] = field(repr=False)
    sums: Ints = field(repr=False)
    output_bits: float | None
    settings: DecodingSettings
    faults: tuple[str, ...] = ()
    signed: str = ""
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def tried(self) -> Ints:
        """Places of the records whose leaves are decoded."""
        every = np.arange(len(self.sums), dtype=np.int64)
        return some_of(every, self.settings.records, attack_draws(self.settings.seed), "decoded")

    def is_of(self, name: str, protocols: Sequence[str]) -> bool:
        """True if the prediction is by one of these protocols; else the reasons say that the attack is on others."""
        if self.protocol not in protocols:
            self.reasons[name] = f"is on predictions by {' or '.join(protocols)}; this one is by {self.protocol}"
        return self.protocol in protocols


def read_scores(
    files: ScoredPrediction, settings: DecodingSettings, ca: Path | None = None, revoked: Path | None = None
) -> ScoreEvidence:
    """Read a recipient's files of one prediction: its transcript, its model, its own table, and the scores.

    Raises:
        BadInput: a file cannot be used, is of another prediction, or the prediction gives nothing to attack.
        Malformed: the transcript was changed.
    """
    with located(files.transcript, files.job) as place:
        replay, faults, anchor = read_replay(place, ca, revoked)
        # The last opening of a prediction by all parties. Raises BadInput for another job.
        if not replay.openings:
            raise BadInput(f"{files.transcript}: the transcript of {files.job!r} is of no prediction")
        opening = replay.openings[max(replay.openings)]
        if opening.away:
            raise BadInput(
                f"prediction {files.job!r} went on without {', '.join(opening.away)}: its scores are means over both "
                "ways of a split, which these attacks do not read; leave it out"
            )
        protocol = prediction_name(opening)
        where = f"prediction {files.job!r}"
        if protocol not in (*ENCRYPTED, *MASKED):
            raise BadInput(f"{where} is by {protocol}, which opens no masked sums; leave it out")
        if anchor.signer not in ("", opening.recipient):
            raise BadInput(f"{files.transcript}: is signed by {anchor.signer}, and {opening.recipient} got the scores")
        manifest, lines = read_model(files.model)
        if [manifest.get("job"), manifest.get("party")] != [opening.model, opening.recipient]:
            raise BadInput(f"{files.model}: is not the model that {opening.recipient} keeps of job {opening.model!r}")
        table = model_table(manifest, files.table, files.id)
        if protocol in MASKED:
            order = _blocks_in_order(where, replay, table)
            arrived = arrivals(replay, len(order.ids))
    if protocol in MASKED:
        view = read_view(files.transcript, opening.model, opening.recipient, ca, revoked).pivodl
        if view is None or opening.parameters.masked.prediction_weights == "noised":
            raise BadInput(f"{where} is of weights that its recipient was sent as they are; leave it out")
        if view.params.regression:
            raise BadInput(f"{where} has scores in the unit of the label, which rounds their sums; leave it out")
        trees, bits = recipient_trees(view, lines, arrived, order.features, MASKED_PLACES), None
        sums = _sums(files, order, manifest["base_margin"], 1, MASKED_PLACES)
    else:
        trees, sums, bits = _of_label_holder(files, opening, manifest, lines, table)
    notes = tuple(f"{files.transcript}: {fault}" for fault in faults)
    return ScoreEvidence(
        files.job, opening.model, opening.recipient, protocol, trees, sums, bits, settings, notes, str(anchor)
    )


def _blocks_in_order(where: str, replay: TranscriptReplay, table: Table) -> Table:
    """The records of a masked prediction in the order of its blocks. Raises BadInput where that is not known."""
    openings, attempts = replay.openings, sorted(replay.alignments)
    if len(openings) > 1 or len(attempts) != 1 or any(it.serve or it.records_file for it in openings.values()):
        raise BadInput(
            f"{where} was interrupted, or was asked for single records: its transcript does not say which records "
            "its blocks hold; leave it out"
        )
    rows = replay.alignments[attempts[0]]
    if replay.gaps:
        raise BadInput(f"{where}: {replay.gaps[-1]}; leave it out")
    if len(table.ids) <= int(rows.max(initial=-1)):
        raise BadInput(f"{table.path}: has {len(table.ids)} rows, fewer than the table of {where}")
    return table.take(np.argsort(table.rows)[rows])


def _sums(files: ScoredPrediction, table: Table, margin: Sequence[float], divisor: int, places: int) -> Ints:
    """The sums (n, outputs) behind the scores of a table's records, in units of 2^-places."""
    names = [name for name in columns_of(files.scores) if name == "score" or name.startswith("score_")]
    if len(names) != len(margin):
        raise BadInput(f"{files.scores}: has {len(names)} columns of scores, and the model {len(margin)} outputs")
    scores = read_table(TableConfig(path=files.scores, id=files.id, columns=names), with_label=False, missing=None)
    place = scores.ids.places_of(table.ids)
    if (place < 0).any():
        raise BadInput(f"{files.scores}: lacks {int((place < 0).sum())} of the records of {table.path}")
    sums = np.ldexp(scores.features[place] * divisor - np.array(margin), places)
    if not (np.abs(sums) < _MOST).all():
        raise BadInput(f"{files.scores}: the scores are too large to be told apart to the resolution of their sums")
    return np.asarray(np.rint(sums), dtype=np.int64)


def _of_label_holder(
    files: ScoredPrediction,
    opening: prediction_pb2.OpenModel,
    manifest: Mapping[str, Any],
    lines: Sequence[Mapping[str, Any]],
    table: Table,
) -> tuple[list[MaskedTree], Ints, float]:
    """The trees with all weights and the leaves that the own splits leave open, the sums, and their bits."""
    repaired = read_repaired(files.model) if VALUES in manifest else []
    trees = valued_trees(manifest, lines, repaired, opening.recipient, f"model {opening.model}")
    ensemble = Ensemble(
        objective=manifest["objective"],
        classes=len(manifest["classes"]),
        base_margin=tuple(manifest["base_margin"]),
        trees=trees.valued,
        trees_per_round=manifest["trees_per_round"],
        best_round=manifest["best_round"],
        averaged=manifest.get("averaged", False),
    )
    if any(tree.local for tree in ensemble.used_trees):
        raise BadInput(
            f"{files.model}: has subtrees of the label holder's own, whose leaves these attacks do not tell apart; "
            f"leave prediction {files.job!r} out"
        )
    places = LeafEntries(ensemble, opening.recipient, list(opening.feature_parties)).fraction_bits
    # the records that the file of predictions has
    ids = read_table(TableConfig(path=files.scores, id=files.id, columns=[]), with_label=False, missing=None).ids
    scored = table.take(np.flatnonzero(ids.places_of(table.ids) >= 0))
    sums = _sums(files, scored, ensemble.base_margin, ensemble.divisor, places)
    known = _known_trees(ensemble, trees, opening.recipient, scored, places)
    return known, sums, output_bits(ensemble.used_trees, places)


def _known_trees(ensemble: Ensemble, trees: ValuedTrees, party: str, table: Table, places: int) -> list[MaskedTree]:
    """Each used tree with its weights, all known, and the leaves that the own splits leave open to each record."""
    own = {split.handle: split for tree in trees.own for split in tree}

    def goes_left(split: Split) -> Bools | None:
        if split.owner != party:
            return None
        return own[split.handle].goes_left(table.features[:, own[split.handle].feature])

    known = []
    for tree in ensemble.used_trees:
        weights = np.zeros((len(tree.leaves), len(ensemble.base_margin)), dtype=np.int64)
        exact = np.array([leaf.weights for leaf in tree.leaves])
        weights[:, list(tree.outputs)] = np.rint(np.ldexp(exact, places)).astype(np.int64)
        leaves = np.array([leaf.node for leaf in tree.leaves], dtype=np.int64)
        possible = candidate_leaves(tree, len(table.ids), goes_left)
        known.append(MaskedTree(leaves, possible, weights, np.ones(len(leaves), dtype=bool)))
    return known


# The attacks on the scores of a prediction: path decoding, and prediction inversion with path decoding after it.
#
# Path decoding says how many records' leaves follow from their score, prediction inversion how many hidden leaf
# weights.


def path_decoding(evidence: ScoreEvidence) -> DecodedPaths | None:
    """Decode the scores that the label holder opened; None, with a reason, of masked sums."""
    if not evidence.is_of("path-decoding", ENCRYPTED):
        return None
    return decoded(evidence, evidence.trees)


def decoded(evidence: ScoreEvidence, trees: Sequence[MaskedTree]) -> DecodedPaths:
    """Decode some records by trees with weights; of a record with a possible leaf of unknown weight nothing follows."""
    records, settings = evidence.tried, evidence.settings
    outcomes: Counter[str] = Counter()
    shares, begun = [], time.perf_counter()
    for record in records.tolist():
        paths = decode_paths(trees, evidence.sums, record, work=settings.work, rounds=settings.rounds)
        outcomes["undecided" if paths is None else paths.outcome] += 1
        shares.append(0.0 if paths is None or not len(paths.leaves) else float((paths.leaves >= 0).mean()))
    bits = np.sum([np.log2(tree.possible[records].sum(axis=1)) for tree in trees], axis=0)
    return DecodedPaths(
        records=len(records),
        left_out=len(evidence.sums) - len(records),
        trees=len(trees),
        unique=outcomes["unique"],
        several=outcomes["several"],
        undecided=outcomes["undecided"],
        contradicted=outcomes["none"],
        leaves_known=float(np.mean(shares)) if shares else 0.0,
        candidate_bits=float(np.median(bits)) if len(records) else 0.0,
        output_bits=evidence.output_bits,
        seconds=time.perf_counter() - begun,
    )


def prediction_inversion(evidence: ScoreEvidence) -> InvertedWeights | None:
    """Find weights by the scores of all records; None, with a reason, of encrypted sums, whose reader has them."""
    if not evidence.is_of("prediction-inversion", MASKED):
        return None
    before = evidence.trees
    after = invert(before, evidence.sums)
    unknown, left = (sum(int((~tree.known).sum()) for tree in trees) for trees in (before, after))
    return InvertedWeights(
        records=len(evidence.sums),
        leaves=sum(len(tree.leaves) for tree in before),
        unknown=unknown,
        solved=unknown - left,
        before=decoded(evidence, before),
        after=decoded(evidence, after),
    )
