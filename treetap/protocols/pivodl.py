"""PIVODL (Zhu et al. 2023): boosting with labels that no single party holds."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from treetap.protocols import boosting
from treetap.protocols.exclusions import Feature
from treetap.protocols.growth import MOST_COLUMNS
from treetap.protocols.messages import (
    JobSizes,
    MessageRow,
    Series,
    all_report,
    at_most,
    each_round,
    each_stage,
    key_with_layout,
    once,
    planned_rounds,
    to_each_other,
)
from treetap.protocols.registry import Centrally, Floats, Tables, TrainingProtocol
from treetap.trees.params import BoostingParams
from treetap.trees.pivodl_params import MOST_CLASSES, PivodlParams
from treetap.trees.pivodl_rules import LARGEST, NONCE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from treetap.protocols.messages import Bound, Times
    from treetap.wire.v2 import setup_pb2

#: Most bytes of a bin.
CODE_BYTES = 2
#: More than the parties of a job: factor of a gain, and of a level in the stage of a turn.
PLACES = 16
#: Bits of a gain with its source.
RANK_BITS: int = (LARGEST * PLACES).bit_length()
#: Bytes of an X25519 key and of a SHA-256.
_MASK_KEY, _COMMITMENT = 32, 32
#: Bytes of a number with its tag, of a node's number with those of its message, of a node with an outcome or a name.
_NUMBER, _NODE, _NAMED = 12, 24, 96
#: Bytes of a record in a list, and of a place of a candidate.
_LISTED, _PLACE = 5, 4


@dataclass(kw_only=True)
class PivodlSizes(JobSizes):
    """Sizes of a PIVODL job: a round is a tree, a stage is a level.

    Attributes:
        params: of the job.
    """

    params: PivodlParams

    def __post_init__(self) -> None:
        self.rounds, self.stages = self.params.n_estimators, self.params.max_depth

    @property
    def nodes(self) -> int:
        """Most nodes of a level: each has a record."""
        return min(1 << self.params.max_depth, max(self.records, 1))

    @property
    def candidates(self) -> int:
        """Most candidates of a source at a node."""
        return MOST_COLUMNS * min(self.params.max_bin * 2, 2 * max(self.records, 1))


def keys_of_party(sizes: PivodlSizes, series: Series) -> int:
    """A Paillier modulus with the proof of its form, an X25519 key and a SHA-256."""
    return key_with_layout(sizes, series) + _MASK_KEY + _COMMITMENT


moments_encrypted = at_most(
    lambda sizes: 3 * sizes.ciphertext_bytes, "Three ciphertexts: the sums of y and y², and their number."
)


sums_encrypted = at_most(lambda sizes: sizes.ciphertext_bytes, "One ciphertext.")


ciphertexts_of_candidates = at_most(
    lambda sizes: sizes.nodes * (_NODE + sizes.candidates * sizes.ciphertext_bytes),
    "A ciphertext for each candidate of each node.",
)


bits_of_gains = at_most(
    lambda sizes: sizes.nodes * (RANK_BITS * sizes.ciphertext_bytes + _NAMED),
    "A ciphertext for each bit of a gain with its source, of each node.",
)


outcomes = at_most(lambda sizes: sizes.nodes * _NAMED, "An outcome, or the name of a source, for each node.")


def each_frontier(sizes: PivodlSizes, _sender: str, _receiver: str) -> tuple[range, range]:
    """Once for the root and once after each level of each tree."""
    return range(sizes.rounds), range(sizes.stages + 1)


def each_turn(sizes: PivodlSizes, _sender: str, _receiver: str) -> tuple[range, Sequence[int]]:
    """Once in each turn of the comparisons of each level of each tree."""
    turns = range(1, len(sizes.members.parties))
    return range(sizes.rounds), [stage_of(level, turn) for level in range(sizes.stages) for turn in turns]


def stage_of(level: int, turn: int) -> int:
    """The stage of a turn's messages; turns count from 1."""
    return level * PLACES + turn


def _of(spec: setup_pb2.JobSpec) -> PivodlParams:
    from treetap.protocols.job_spec import params_as  # it imports the registry, which names this module

    return params_as(spec, PivodlParams)


def _adds_moments(params: PivodlParams) -> bool:
    return params.needs_moments


def _compares_in_secret(params: PivodlParams) -> bool:
    return params.gain_comparison == "secure"


def _sent(
    step: str, content: str, times: Times, bound: Bound, when: Callable[[PivodlParams], bool] | None = None
) -> MessageRow:
    """A content that each party sends to each other, if the job has it at all."""
    row = MessageRow(content, to_each_other, times, bound, step=step)
    return row if when is None else replace(row, when=lambda spec: when(_of(spec)))


def predict_centrally(
    before: Tables,
    after: Tables,
    labels: npt.NDArray[Any],
    classes: int,
    params: PivodlParams,
    ownership: Mapping[str, npt.NDArray[Any]] | None = None,
) -> tuple[Floats, Floats]:
    """Scores and outcomes of other records by the joined table's model, without noise.

    Without `ownership` the first party labels all records.
    Of one party's table the model is boosting's: a candidate of PIVODL needs a second party that opens its sums.
    """
    if len(before) == 1:
        names = {field.name for field in fields(BoostingParams)} & {field.name for field in fields(PivodlParams)}
        return boosting.predict_centrally(
            before, after, labels, classes, BoostingParams(**{name: getattr(params, name) for name in names})
        )
    from treetap.tables.binned import bin_columns
    from treetap.trees.centralised_pivodl import train

    bins = {name: bin_columns(table, params.max_bin, None) for name, table in before}
    model = train(list(bins.items()), labels, replace(params, epsilon=None), ownership)
    scores = model.predict([(name, bins[name].encode(table.features)) for name, table in after])
    return scores, model.outcome(scores)


def _privacy(params: PivodlParams) -> Sequence[str]:
    from treetap.privacy.zcdp import statement

    return statement(params)


PROTOCOL = TrainingProtocol(
    field="pivodl",
    params=PivodlParams,
    sends=(
        planned_rounds("bin"),
        _sent("exchange_party_keys", "party_keys", once, keys_of_party),
        _sent("open_nonces", "party_nonce", once, at_most(NONCE_BYTES, "A nonce.")),
        _sent(
            "share_ownership",
            "labelled_records",
            once,
            at_most(lambda sizes: sizes.record_set(), "One set of records."),
        ),
        _sent("share_moments", "moment_share", once, moments_encrypted, _adds_moments),
        _sent("share_moments", "joint_moments", once, moments_encrypted, _adds_moments),
        _sent("share_moments", "label_moments", once, at_most(256, "Two numbers of a fixed width."), _adds_moments),
        _sent(
            "share_bins",
            "record_bins",
            once,
            at_most(
                lambda sizes: MOST_COLUMNS * (CODE_BYTES * sizes.records + _NODE),
                "A bin for each record in each column.",
            ),
            lambda params: not params.as_published,
        ),
        _sent("open_root", "label_sums", each_round, sums_encrypted),
        _sent("open_root", "joint_sums", each_round, sums_encrypted),
        _sent(
            "open_root",
            "node_sums",
            each_frontier,
            at_most(
                lambda sizes: sizes.nodes * (_NODE + 2 * MOST_CLASSES * _NUMBER), "G and H of each node, of each class."
            ),
        ),
        _sent(
            "sum_candidates",
            "candidate_records",
            each_stage,
            at_most(
                lambda sizes: sizes.candidates * (sizes.nodes * _NODE + sizes.records * _LISTED),
                "For each candidate of each node the records on its left.",
            ),
            lambda params: params.as_published,
        ),
        _sent("sum_candidates", "candidate_shares", each_stage, ciphertexts_of_candidates),
        _sent("forward_sums", "forwarded_sums", each_stage, ciphertexts_of_candidates),
        _sent(
            "open_sums",
            "best_gains",
            each_stage,
            at_most(
                lambda sizes: sizes.nodes * (_NODE + _NUMBER + 64), "A gain and the name of its source, for each node."
            ),
            lambda params: params.gain_comparison == "announce",
        ),
        _sent("compare_gains", "gain_bits", each_turn, bits_of_gains, _compares_in_secret),
        _sent("compare_gains", "blinded_gains", each_turn, bits_of_gains, _compares_in_secret),
        _sent("compare_gains", "gain_orders", each_turn, outcomes, _compares_in_secret),
        _sent("compare_gains", "winning_sources", each_stage, outcomes, _compares_in_secret),
        _sent(
            "divide_nodes",
            "winning_candidates",
            each_stage,
            at_most(
                lambda sizes: sizes.nodes * _NODE + sizes.candidates * _PLACE,
                "The places of the candidates that won, of each node; all may tie.",
            ),
        ),
        _sent(
            "divide_nodes",
            "divided_nodes",
            each_stage,
            at_most(lambda sizes: sizes.nodes * 2 * _NODE, "Handle, open children and place taken, of each node."),
        ),
        _sent(
            "divide_nodes",
            "node_records",
            each_stage,
            at_most(lambda sizes: sizes.record_sets(2 * sizes.nodes), "The records of both children of each node."),
        ),
        _sent(
            "settle_children",
            "leaf_weights",
            each_stage,
            at_most(
                lambda sizes: sizes.nodes * 2 * (_NODE + MOST_CLASSES * _NUMBER),
                "A weight of each class for both children of each node.",
            ),
        ),
        _sent("close_tree", "metric_share", each_round, at_most(64, "Two masked numbers.")),
        MessageRow("settled_level", all_report, step="settle_children"),
        MessageRow("closed_tree", all_report, step="close_tree"),
    ),
    opens_sums=lambda _members: (),  # whose sums a party opens is drawn, and every party is a peer of every other
    centrally=Centrally(predict_centrally),
    sequential=True,
    most_equals=10,
    permissions=lambda spec: ("pivodl_as_published",) if _of(spec).as_published else (),
    capabilities=frozenset({Feature.CUTS}),
    privacy=_privacy,
    predicts=("masked",),
)
