"""PIVODL (Zhu et al. 2023): boosting with labels that no single party holds."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from treetap.protocols import boosting
from treetap.protocols.key_options import PAILLIER
from treetap.protocols.messages import Members, MessageRow, Pairs, to_each_other
from treetap.protocols.registry import Floats, Tables, TrainingProtocol
from treetap.trees.params import BoostingParams
from treetap.trees.pivodl_params import PivodlParams

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from treetap.wire.v2 import setup_pb2


def _all_report(members: Members) -> Pairs:
    return [(party, members.coordinator) for party in members.parties]


def no_party_opens(members: Members) -> Sequence[str]:
    """None more than others: whose sums a party opens is drawn, and every party is a peer of every other."""
    del members
    return ()


def _of(spec: setup_pb2.JobSpec) -> PivodlParams:
    from treetap.protocols.job_spec import params_as  # it imports the registry, which names this module

    return params_as(spec, PivodlParams)


def _spread(spec: setup_pb2.JobSpec) -> bool:
    return not _of(spec).centralised_labels


def _compares_in_secret(params: PivodlParams) -> bool:
    return params.gain_comparison == "secure"


def _sent(content: str, when: Callable[[PivodlParams], bool] = lambda _: True) -> MessageRow:
    """A content that each party sends to each other in some tree, of jobs whose labels are spread."""
    return MessageRow(content, to_each_other, when=lambda spec: _spread(spec) and when(_of(spec)))


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
        _sent("party_keys"),
        _sent("party_nonce"),
        MessageRow("labelled_records", to_each_other),
        _sent("moment_share", lambda params: params.needs_moments),
        _sent("joint_moments", lambda params: params.needs_moments),
        _sent("label_moments", lambda params: params.needs_moments),
        MessageRow(
            "record_bins", to_each_other, when=lambda spec: not _spread(spec) or _of(spec).wire_form == "compact"
        ),
        _sent("candidate_records", lambda params: params.wire_form == "paper"),
        _sent("label_sums"),
        _sent("joint_sums"),
        _sent("node_sums"),
        _sent("candidate_shares"),
        _sent("forwarded_sums"),
        _sent("best_gains", lambda params: params.gain_comparison == "announce"),
        _sent("gain_bits", _compares_in_secret),
        _sent("blinded_gains", _compares_in_secret),
        _sent("gain_orders", _compares_in_secret),
        _sent("winning_sources", _compares_in_secret),
        _sent("winning_candidates"),
        _sent("divided_nodes"),
        _sent("node_records"),
        _sent("leaf_weights"),
        _sent("metric_share"),
        MessageRow("grown_tree", to_each_other, when=lambda spec: not _spread(spec)),
        MessageRow("settled_level", _all_report, when=_spread),
        MessageRow("closed_tree", _all_report),
    ),
    opens_sums=no_party_opens,
    trees_are_sequential=True,
    draws_for_audit=False,
    predict_centrally=predict_centrally,
    schemes=(PAILLIER,),  # its comparison multiplies by uniform units modulo n, which a secret p does not permit
    one_role=True,
    most_parties=10,
    spreads_labels=_spread,
    permissions=lambda spec: () if _spread(spec) else ("centralised_labels",),
    privacy=_privacy,
    predicts=("masked",),
)
