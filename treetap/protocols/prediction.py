"""A prediction's request by an operator, and the checks that every process makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from treetap.errors import ConfigError
from treetap.names import did_you_mean
from treetap.protocols import codec, scoring
from treetap.protocols.alignment import ALIGNMENTS
from treetap.protocols.messages import Members, MessageRow, Sent, sent_by
from treetap.protocols.registry import PREDICTION, Options, PredictionProtocol, prediction, prediction_name
from treetap.wire.v2 import jobs_pb2, prediction_pb2

#: Policies of a prediction for a feature party that does not answer.
AWAY_POLICIES = ("fail", "retry", "degrade")
#: Formats of the predictions' file; the first is the default.
FORMATS = ("parquet", "csv")
#: Names of columns in the files of predictions.
COLUMNS = ("prediction", "probability", "score", "guessed", "class", "expected", "paths")
COLUMN_PREFIXES = ("probability_", "score_", "own:", "party:")
#: Seconds: progress is sent every second, and an hour is long enough.
AWAY_DEADLINES = (3, 3600)
#: Most feature parties of a prediction with attributions.
MOST_ATTRIBUTING = 4


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
    found = prediction(protocol or next(iter(PREDICTION)))
    options = {option.name for option in fields(found.options)}
    if faults := [_foreign(found, option, value) for option, value in asked.items() if option not in options]:
        raise ConfigError("\n".join(faults))
    codec.put(found.options(**asked), getattr(request.parameters, found.field))
    return request


def id_column_fault(name: str) -> str | None:
    """The reason why the ids of predictions cannot have this name; None if they can."""
    if name in COLUMNS or name.startswith(COLUMN_PREFIXES):
        return f"the id column is called {name!r}, as a column of the predictions is; give it another name"
    return None


def options_of(opening: prediction_pb2.OpenModel) -> Options:
    """The options of the protocol that an opening names."""
    found = prediction(prediction_name(opening))
    return codec.read(getattr(opening.parameters, found.field), found.options)


def present(opening: prediction_pb2.OpenModel) -> list[str]:
    """The feature parties that are not away, in the order in which ciphertexts travel."""
    return [party for party in opening.feature_parties if party not in opening.away]


def check_prediction(opening: prediction_pb2.OpenModel) -> None:
    """`ConfigError` listing everything in a prediction that no party can do."""
    found = prediction(prediction_name(opening))
    faults = options_of(opening).faults() + _away_faults(opening, found) + _explain_faults(opening, found)
    faults += _format_faults(opening) + _evaluate_faults(opening)
    faults += _serve_faults(opening, found) if opening.serve else []
    if faults:
        raise ConfigError("\n".join(faults))


def degrades_serving(opening: prediction_pb2.OpenModel) -> bool:
    """True for a served model that goes on without a feature party."""
    return opening.serve and opening.away_policy == "degrade"


def check_degraded_serving(opening: prediction_pb2.OpenModel, party_dropout: Mapping[str, float]) -> None:
    """`ConfigError` where a model would be served without a party that took part in all of its training.

    `party_dropout`: of the training, by feature party (Party-wise Dropout, docs/protocol-splitnn.md).
    """
    if always := [party for party in opening.feature_parties if not party_dropout.get(party, 0.0) > 0]:
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
    return Members(coordinator, opening.recipient, tuple(present(opening)))


def rows_of_prediction(opening: prediction_pb2.OpenModel) -> list[MessageRow]:
    """The rows of all messages of a prediction that `check_prediction` has passed."""
    protocol = prediction(prediction_name(opening))
    return [
        *ALIGNMENTS.get(opening.alignment, ()),
        *(scoring.OPENED_TREES if protocol.of_trees else scoring.OPENED),
        *(scoring.SERVING if opening.serve else scoring.PREDICTION),
        *protocol.sends,
        *(protocol.sends_served if opening.serve else ()),
        *(scoring.EXPLANATIONS if opening.explain else ()),
        *(protocol.sends_attributions if opening.attributions else ()),
    ]


def _foreign(found: PredictionProtocol, option: str, value: object) -> str:
    """The fault of an option that a protocol does not have: the reason, or the protocols that have it."""
    shown = f"{value:g}" if isinstance(value, float) else repr(value)
    why = found.foreign.get(option)
    owners = [name for name in PREDICTION if option in {each.name for each in fields(prediction(name).options)}]
    return f"{option} = {shown}: " + (why or f"is an option of {' and '.join(owners)} predictions only; leave it out")


def _serve_faults(opening: prediction_pb2.OpenModel, found: PredictionProtocol) -> list[str]:
    faults = [f"serve: {found.no_serving}"] if found.no_serving else []
    if opening.records_file:
        faults.append("records: a served model predicts the records that clients request; leave it out")
    if opening.away_policy == "degrade" and found.no_degraded_serving:
        faults.append(f"away = 'degrade': {found.no_degraded_serving}")
    if opening.explain or opening.attributions:
        faults.append("explain, attributions: a served model answers with predictions alone; leave them out")
    return faults


def _format_faults(opening: prediction_pb2.OpenModel) -> list[str]:
    if not opening.format:
        return []
    if opening.serve:
        return ["format: a served model writes no file; leave it out"]
    meant = did_you_mean(opening.format, FORMATS)
    wrong = opening.format not in FORMATS
    return [f"format = {opening.format!r}: must be one of {', '.join(FORMATS)}{meant}"] if wrong else []


def _evaluate_faults(opening: prediction_pb2.OpenModel) -> list[str]:
    if not opening.evaluate:
        return []
    if opening.serve:
        return ["evaluate: a served model answers with predictions alone; leave it out"]
    if opening.records_file:
        return [
            "evaluate: measures of chosen records, and of these without one, would tell the label of one; leave out "
            "records, and the whole table is evaluated"
        ]
    return []


def _away_faults(opening: prediction_pb2.OpenModel, found: PredictionProtocol) -> list[str]:
    faults = []
    policy, deadline = opening.away_policy, opening.away_deadline_s
    if policy not in AWAY_POLICIES:
        faults.append(f"away = {policy!r}: must be one of {', '.join(AWAY_POLICIES)}")
    if policy == "degrade" and found.no_degrade:
        faults.append(f"away = 'degrade': {found.no_degrade}")
    if policy == "degrade" and opening.attributions:
        faults.append("away = 'degrade': there are no attributions without a party; use retry, or leave them out")
    if policy == "fail" and deadline:
        faults.append(f"away-deadline = {deadline:g}: is an option of retry and degrade; leave it out")
    if policy in ("retry", "degrade") and not AWAY_DEADLINES[0] <= deadline <= AWAY_DEADLINES[1]:
        faults.append(f"away-deadline = {deadline:g}: must be {AWAY_DEADLINES[0]} to {AWAY_DEADLINES[1]} seconds")
    if opening.away and policy != "degrade":
        faults.append(f"away: {', '.join(opening.away)} cannot be left out of a prediction that does not degrade")
    faults += [f"away: {name!r} is not a feature party" for name in opening.away if name not in opening.feature_parties]
    return faults


def _explain_faults(opening: prediction_pb2.OpenModel, found: PredictionProtocol) -> list[str]:
    faults = []
    if opening.explain_limit and not opening.explain:
        faults.append(
            f"explain-limit = {opening.explain_limit}: is an option of explain; leave it out, or ask for that"
        )
    if found.no_explanation and (opening.explain or opening.attributions):
        return [*faults, f"explain, attributions: {found.no_explanation}"]
    if opening.attributions and not found.sends_attributions:
        able = " or ".join(name for name in PREDICTION if prediction(name).sends_attributions)
        faults.append(
            f"attributions: protocol {prediction_name(opening)!r} cannot; they are masked sums of an encrypted "
            f"prediction: use protocol {able}"
        )
    if opening.attributions and len(opening.feature_parties) > MOST_ATTRIBUTING:
        faults.append(
            f"attributions: {len(opening.feature_parties)} feature parties are too many, each doubles the entries of a "
            f"leaf; at most {MOST_ATTRIBUTING}"
        )
    return faults
