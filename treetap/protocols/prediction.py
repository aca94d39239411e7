"""A prediction's request by an operator, and the checks that every process makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from treetap.errors import ConfigError, did_you_mean
from treetap.protocols import messages
from treetap.protocols.alignment import ALIGNMENTS, LOOK_UPS
from treetap.protocols.codec import params_in, write_params
from treetap.protocols.exclusions import PREDICTIONS, Feature, broken
from treetap.protocols.messages import LEFT, Members, MessageRow, Sent, aligned_apart, sent_by
from treetap.protocols.registry import PREDICTION, Options, prediction, prediction_name, training
from treetap.wire.v2 import jobs_pb2, prediction_pb2

#: Policies of a prediction for a feature party that does not answer.
AWAY_POLICIES = ("fail", "retry", "degrade")
#: Formats of the predictions' file; the first is the default.
FORMATS = ("parquet", "csv")
#: Names of columns in the files of predictions.
COLUMNS = ("prediction", "score", "guessed", "class", "expected", "paths")
COLUMN_PREFIXES = ("probability_", "score_", "own:", "party:")
#: Seconds: progress is sent every second, and an hour is long enough.
AWAY_DEADLINES = (3, 3600)


def predict_request(protocol: str = "", **given: Any) -> jobs_pb2.PredictRequest:
    """The request for a prediction by a protocol, empty for the default.

    `given`: fields of the request, and options of the protocol under their own names; an option that is None, 0 or
    empty counts as not given.

    Raises:
        ConfigError: there is no such protocol, or it does not have one of the options.
    """
    own = jobs_pb2.PredictRequest.DESCRIPTOR.fields_by_name
    request = jobs_pb2.PredictRequest(**{name: value for name, value in given.items() if name in own})
    asked = {name: value for name, value in given.items() if name not in own and value}
    if not protocol and not asked:
        return request
    name = protocol or next(iter(PREDICTION))
    described = prediction(name)
    if rows := broken(PREDICTIONS, set(map(Feature, asked)), name, described.features):
        raise ConfigError("\n".join(map(str, rows)))
    write_params(described.options(**asked), getattr(request.parameters, described.field))
    return request


def predicting(trained_by: str, *, withheld: bool) -> list[str]:
    """The protocols that predict by models of a training, the default first.

    `withheld`: the training withheld instance spaces.
    """
    used, named = {Feature.WITHHELD_MODEL} if withheld else set[Feature](), training(trained_by).predicts
    return [name for name in named if not broken(PREDICTIONS, used, name, prediction(name).capabilities)]


def id_column_fault(name: str) -> str | None:
    """The reason why the ids of predictions cannot have this name; None if they can."""
    if name in COLUMNS or name.startswith(COLUMN_PREFIXES):
        return f"the id column is called {name!r}, as a column of the predictions is; give it another name"
    return None


def options_of(opening: prediction_pb2.OpenModel) -> Options:
    """The options of the protocol that an opening names."""
    described = prediction(prediction_name(opening))
    return params_in(getattr(opening.parameters, described.field), described.options)


def present(opening: prediction_pb2.OpenModel) -> list[str]:
    """The feature parties that are not away, in the order in which ciphertexts travel."""
    return [party for party in opening.feature_parties if party not in opening.away]


def check_prediction(opening: prediction_pb2.OpenModel) -> None:
    """`ConfigError` listing everything in a prediction that no party can do."""
    name = prediction_name(opening)
    faults = options_of(opening).faults() + _away_faults(opening)
    if opening.explain_limit and not opening.explain:
        faults.append(
            f"explain-limit = {opening.explain_limit}: is an option of explain; leave it out, or ask for that"
        )
    if opening.reasons and not opening.serve:
        faults.append("reasons: are given to clients of a served model; serve it, or leave them out")
    if opening.attributions and len(opening.feature_parties) > messages.MOST_ATTRIBUTING:
        faults.append(
            f"attributions: {len(opening.feature_parties)} feature parties are too many, each doubles the entries of a "
            f"leaf; at most {messages.MOST_ATTRIBUTING}"
        )
    faults += map(str, broken(PREDICTIONS, features_of(opening), name, prediction(name).features))
    if opening.format and opening.format not in FORMATS:
        meant = did_you_mean(opening.format, FORMATS)
        faults.append(f"format = {opening.format!r}: must be one of {', '.join(FORMATS)}{meant}")
    if faults:
        raise ConfigError("\n".join(faults))


def degrades_serving(opening: prediction_pb2.OpenModel) -> bool:
    """True for a served model that goes on without a feature party."""
    return opening.serve and opening.away_policy == "degrade"


def check_degraded_serving(opening: prediction_pb2.OpenModel, absence: Callable[[str], float]) -> None:
    """`ConfigError` where a model would be served without a party that took part in all of its training.

    `absence`: the share of the training that a feature party sat out (Party-wise Dropout, docs/protocol-splitnn.md).
    """
    if always := [party for party in opening.feature_parties if not absence(party) > 0]:
        wanted = ", ".join(f"{party} = 0.1" for party in always)
        raise ConfigError(
            f"away = 'degrade': model {opening.model} was trained without party_dropout of {', '.join(always)}, so its "
            f"answers without that party would be of little use; train it with party_dropout = {{{wanted}}}, or use "
            "retry"
        )


def sent_in_prediction(opening: prediction_pb2.OpenModel, coordinator: str) -> Iterator[Sent]:
    """All that a prediction has its parties send, once `check_prediction` has passed it."""
    return sent_by(rows_of_prediction(opening), members_present(opening, coordinator))


def members_present(opening: prediction_pb2.OpenModel, coordinator: str) -> Members:
    """The members of a prediction without those that are away."""
    return Members(coordinator, opening.recipient, tuple(present(opening)), pairwise=aligned_apart(opening))


def rows_of_prediction(opening: prediction_pb2.OpenModel) -> list[MessageRow]:
    """The rows of all messages of a prediction that `check_prediction` has passed."""
    protocol = prediction(prediction_name(opening))
    return [
        *ALIGNMENTS.get(opening.alignment, ()),
        *(messages.OPENED_TREES if protocol.of_trees else messages.OPENED),
        *(messages.SERVING if opening.serve else messages.PREDICTION),
        *protocol.sends,
        *(protocol.sends_served if opening.serve else ()),
        *(LOOK_UPS if opening.look_up else ()),
        *(messages.EXPLANATIONS if opening.explain else ()),
        *(messages.REASONS if opening.reasons else ()),
        *(protocol.sends_attributions if opening.attributions else ()),
    ]


def features_of(opening: prediction_pb2.OpenModel) -> set[Feature]:
    """The features of a prediction that exclude others, or that not every protocol has."""
    degrades = opening.away_policy == "degrade"
    used = {
        Feature.SERVE: opening.serve,
        Feature.SERVE_DEGRADED: degrades_serving(opening),
        Feature.DEGRADE: degrades,
        Feature.EXPLAIN: opening.explain,
        Feature.ATTRIBUTIONS: opening.attributions,
        Feature.REASONS: opening.reasons,
        Feature.EVALUATE: opening.evaluate,
        Feature.RECORDS: bool(opening.records_file),
        Feature.FORMAT: bool(opening.format),
        Feature.LEFT_MODEL: opening.join == LEFT,
        Feature.LOOK_UP: opening.look_up,
        Feature.TABLE: not opening.serve,
        Feature.SORTED_IDS: opening.alignment == "sorted-ids",
    }
    return {feature for feature, has in used.items() if has}


def _away_faults(opening: prediction_pb2.OpenModel) -> list[str]:
    faults = []
    policy, deadline = opening.away_policy, opening.away_deadline_s
    if policy not in AWAY_POLICIES:
        faults.append(f"away = {policy!r}: must be one of {', '.join(AWAY_POLICIES)}")
    if policy == "fail" and deadline:
        faults.append(f"away-deadline = {deadline:g}: is an option of retry and degrade; leave it out")
    if policy in ("retry", "degrade") and not AWAY_DEADLINES[0] <= deadline <= AWAY_DEADLINES[1]:
        faults.append(f"away-deadline = {deadline:g}: must be {AWAY_DEADLINES[0]} to {AWAY_DEADLINES[1]} seconds")
    if opening.away and policy != "degrade":
        faults.append(f"away: {', '.join(opening.away)} cannot be left out of a prediction that does not degrade")
    faults += [f"away: {name!r} is not a feature party" for name in opening.away if name not in opening.feature_parties]
    return faults
