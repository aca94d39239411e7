"""PIVODL (Zhu et al. 2023): boosting with labels that no single party holds."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from treetap.protocols import boosting
from treetap.protocols.growth import MOST_COLUMNS
from treetap.protocols.key_options import PAILLIER
from treetap.protocols.messages import (
    JobSizes,
    Members,
    MessageRow,
    Series,
    all_report,
    each_round,
    each_stage,
    once,
    public_key,
    to_each_other,
)
from treetap.protocols.registry import Floats, Tables, TrainingProtocol
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


def party_keys(sizes: PivodlSizes, series: Series) -> int:
    """A Paillier modulus, an X25519 key and a SHA-256."""
    return public_key(sizes, series) + _MASK_KEY + _COMMITMENT


def party_nonce(sizes: PivodlSizes, series: Series) -> int:
    """A nonce."""
    del sizes, series
    return NONCE_BYTES


def labelled_records(sizes: PivodlSizes, series: Series) -> int:
    """One set of records."""
    del series
    return sizes.record_set()


def moments_encrypted(sizes: PivodlSizes, series: Series) -> int:
    """Three ciphertexts: the sums of y and y², and their number."""
    del series
    return 3 * sizes.ciphertext_bytes


def label_moments(sizes: PivodlSizes, series: Series) -> int:
    """Two numbers of a fixed width."""
    del sizes, series
    return 256


def record_bins(sizes: PivodlSizes, series: Series) -> int:
    """A bin for each record in each column."""
    del series
    return MOST_COLUMNS * (CODE_BYTES * sizes.records + _NODE)


def candidate_records(sizes: PivodlSizes, series: Series) -> int:
    """For each candidate of each node the records on its left."""
    del series
    return sizes.candidates * (sizes.nodes * _NODE + sizes.records * _LISTED)


def sums_encrypted(sizes: PivodlSizes, series: Series) -> int:
    """One ciphertext."""
    del series
    return sizes.ciphertext_bytes


def node_sums(sizes: PivodlSizes, series: Series) -> int:
    """G and H of each node, of each class."""
    del series
    return sizes.nodes * (_NODE + 2 * MOST_CLASSES * _NUMBER)


def candidate_sums(sizes: PivodlSizes, series: Series) -> int:
    """A ciphertext for each candidate of each node."""
    del series
    return sizes.nodes * (_NODE + sizes.candidates * sizes.ciphertext_bytes)


def best_gains(sizes: PivodlSizes, series: Series) -> int:
    """A gain and the name of its source, for each node."""
    del series
    return sizes.nodes * (_NODE + _NUMBER + 64)


def gain_bits(sizes: PivodlSizes, series: Series) -> int:
    """A ciphertext for each bit of a gain with its source, of each node."""
    del series
    return sizes.nodes * (RANK_BITS * sizes.ciphertext_bytes + _NAMED)


def outcomes(sizes: PivodlSizes, series: Series) -> int:
    """An outcome, or the name of a source, for each node."""
    del series
    return sizes.nodes * _NAMED


def winning_candidates(sizes: PivodlSizes, series: Series) -> int:
    """The places of the candidates that won, of each node; all may tie."""
    del series
    return sizes.nodes * _NODE + sizes.candidates * _PLACE


def divided_nodes(sizes: PivodlSizes, series: Series) -> int:
    """Handle, open children and place taken, of each node."""
    del series
    return sizes.nodes * 2 * _NODE


def node_records(sizes: PivodlSizes, series: Series) -> int:
    """The records of both children of each node."""
    del series
    return sizes.record_sets(2 * sizes.nodes)


def leaf_weights(sizes: PivodlSizes, series: Series) -> int:
    """A weight of each class for both children of each node."""
    del series
    return sizes.nodes * 2 * (_NODE + MOST_CLASSES * _NUMBER)


def metric_share(sizes: PivodlSizes, series: Series) -> int:
    """Two masked numbers."""
    del sizes, series
    return 64


def each_frontier(sizes: PivodlSizes, sender: str, receiver: str) -> tuple[range, range]:
    """Once for the root and once after each level of each tree."""
    del sender, receiver
    return range(sizes.rounds), range(sizes.stages + 1)


def each_turn(sizes: PivodlSizes, sender: str, receiver: str) -> tuple[range, Sequence[int]]:
    """Once in each turn of the comparisons of each level of each tree."""
    del sender, receiver
    turns = range(1, len(sizes.members.parties))
    return range(sizes.rounds), [stage_of(level, turn) for level in range(sizes.stages) for turn in turns]


def stage_of(level: int, turn: int) -> int:
    """The stage of a turn's messages; turns count from 1."""
    return level * PLACES + turn


def no_party_opens(members: Members) -> Sequence[str]:
    """None more than others: whose sums a party opens is drawn, and every party is a peer of every other."""
    del members
    return ()


def _of(spec: setup_pb2.JobSpec) -> PivodlParams:
    from treetap.protocols.job_spec import params_as  # it imports the registry, which names this module

    return params_as(spec, PivodlParams)


def _adds_moments(params: PivodlParams) -> bool:
    return params.needs_moments


def _compares_in_secret(params: PivodlParams) -> bool:
    return params.gain_comparison == "secure"


def _sent(
    content: str, times: Times, bound: Bound, when: Callable[[PivodlParams], bool] = lambda _: True
) -> MessageRow:
    """A content that each party sends to each other, if the job has it at all."""
    return MessageRow(content, to_each_other, times, bound, when=lambda spec: when(_of(spec)))


def predict_centrally(
    before: Tables,
    after: Tables,
    labels: npt.NDArray[Any],
    classes: int,
    params: PivodlParams,
    ownership: Mapping[str, npt.NDArray[Any]] | None = None,
) -> tuple[Floats, Floats]:
    """See `TrainingProtocol`; without noise. Without `ownership` the first party labels all records.

    Of one party's table the model is boosting's: a candidate of PIVODL needs a second party that opens its sums.
    """
    if len(before) == 1:
        return boosting.predict_centrally(before, after, labels, classes, _boosted(params))
    from treetap.tables.binned import bin_columns
    from treetap.trees.centralised_pivodl import train

    bins = {name: bin_columns(table, params.max_bin, None) for name, table in before}
    model = train(list(bins.items()), labels, replace(params, epsilon=None), ownership)
    scores = model.predict([(name, bins[name].encode(table.features)) for name, table in after])
    return scores, model.outcome(scores)


def _privacy(params: PivodlParams) -> Sequence[str]:
    from treetap.privacy.zcdp import statement

    return statement(params)


def _boosted(params: PivodlParams) -> BoostingParams:
    """The same parameters, as far as boosting has them."""
    names = {field.name for field in fields(BoostingParams)} & {field.name for field in fields(PivodlParams)}
    return BoostingParams(**{name: getattr(params, name) for name in names})


PROTOCOL = TrainingProtocol(
    no_eval_table="labels lie with several parties, whose figures are added up under masks for the training alone",
    field="pivodl",
    params=PivodlParams,
    no_continuation="the parties keep no scores of the records that all could begin with",
    sends=(
        _sent("party_keys", once, party_keys),
        _sent("party_nonce", once, party_nonce),
        _sent("labelled_records", once, labelled_records),
        _sent("moment_share", once, moments_encrypted, _adds_moments),
        _sent("joint_moments", once, moments_encrypted, _adds_moments),
        _sent("label_moments", once, label_moments, _adds_moments),
        _sent("record_bins", once, record_bins, lambda params: not params.as_published),
        _sent("candidate_records", each_stage, candidate_records, lambda params: params.as_published),
        _sent("label_sums", each_round, sums_encrypted),
        _sent("joint_sums", each_round, sums_encrypted),
        _sent("node_sums", each_frontier, node_sums),
        _sent("candidate_shares", each_stage, candidate_sums),
        _sent("forwarded_sums", each_stage, candidate_sums),
        _sent("best_gains", each_stage, best_gains, lambda params: params.gain_comparison == "announce"),
        _sent("gain_bits", each_turn, gain_bits, _compares_in_secret),
        _sent("blinded_gains", each_turn, gain_bits, _compares_in_secret),
        _sent("gain_orders", each_turn, outcomes, _compares_in_secret),
        _sent("winning_sources", each_stage, outcomes, _compares_in_secret),
        _sent("winning_candidates", each_stage, winning_candidates),
        _sent("divided_nodes", each_stage, divided_nodes),
        _sent("node_records", each_stage, node_records),
        _sent("leaf_weights", each_stage, leaf_weights),
        _sent("metric_share", each_round, metric_share),
        MessageRow("settled_level", all_report),
        MessageRow("closed_tree", all_report),
    ),
    opens_sums=no_party_opens,
    trees_are_sequential=True,
    draws_for_audit=False,
    predict_centrally=predict_centrally,
    schemes=(PAILLIER,),  # its comparison multiplies by uniform units modulo n, which a secret p does not permit
    one_role=True,
    most_parties=10,
    permissions=lambda spec: ("pivodl_as_published",) if _of(spec).as_published else (),
    privacy=_privacy,
    predicts=("masked",),
)
