"""A job on its way from its operator to the parties: named, drafted by the coordinator, compared, signed.

The operator chooses the job's name and draws the nonce of its submission, so that it knows what it signs. What only the
coordinator knows, such as the parties of a model to predict with, comes as a draft of the opening. The operator
compares it with what it asked for and signs the digest of the job (`treetap.protocols.agreement`).
"""

from __future__ import annotations

import secrets
from typing import TypeAlias, TypeVar

from google.protobuf.message import Message

from treetap.errors import Refused
from treetap.wire.frame import Opening
from treetap.wire.v2 import jobs_pb2, setup_pb2

Request: TypeAlias = jobs_pb2.SubmitRequest | jobs_pb2.PredictRequest | jobs_pb2.AlignRequest
Asked = TypeVar("Asked", jobs_pb2.SubmitRequest, jobs_pb2.PredictRequest, jobs_pb2.AlignRequest)
#: Fields of a prediction's opening that the coordinator fills in where the request leaves them open.
_FILLED = frozenset(
    {
        *("table", "recipient", "feature_parties", "alignment", "block", "submission", "prediction", "parameters"),
        *("away_policy", "away_deadline_s", "peers"),
    }
)
#: Most characters of a made-up name before its random end.
_PREFIX = 50


def new_submission() -> str:
    """A nonce that distinguishes a submission of a job from another one of the same name."""
    return str(secrets.randbits(64))


def named(request: Asked) -> Asked:
    """A copy of a request with a name, made up where it has none, and with a nonce of this submission."""
    made = type(request)()
    made.CopyFrom(request)
    if not made.job:
        if isinstance(made, jobs_pb2.PredictRequest):
            prefix = f"{'serve' if made.serve else 'predict'}-{made.model}"[:_PREFIX]
        else:
            prefix = "job" if isinstance(made, jobs_pb2.SubmitRequest) else "align"
        made.job = f"{prefix}-{secrets.token_hex(4)}"
    made.submission = new_submission()
    return made


def to_draft(request: Request) -> jobs_pb2.DraftRequest:
    """The request for a draft."""
    if isinstance(request, jobs_pb2.SubmitRequest):
        return jobs_pb2.DraftRequest(train=request)
    if isinstance(request, jobs_pb2.PredictRequest):
        return jobs_pb2.DraftRequest(predict=request)
    return jobs_pb2.DraftRequest(align=request)


def checked(request: Request, drafted: jobs_pb2.Drafted) -> Opening:
    """The opening of a draft, if it is of the job that was asked for.

    Raises:
        Refused: the coordinator has put another value where the operator has named one, or one where it may name none.
    """
    opening: Opening
    if isinstance(request, jobs_pb2.SubmitRequest):
        opening, asked = drafted.prepare, setup_pb2.Prepare(spec=request.spec, submission=request.submission)
        asked.spec.base_submission = opening.spec.base_submission  # of the base model, which only the coordinator knows
        fault = _differing(asked, opening, frozenset())
    elif isinstance(request, jobs_pb2.PredictRequest):
        opening, fault = drafted.open_model, _differing_as_named(request, drafted.open_model, _FILLED)
        if opening.prediction != request.submission:
            fault = "prediction"
    else:
        opening, fault = drafted.open_preview, _differing_as_named(request, drafted.open_preview, frozenset({"peers"}))
    if fault:
        raise Refused(
            f"the coordinator's draft of job {request.job} is not what was asked for: {fault} differs; nothing was "
            "signed"
        )
    return opening


def _differing_as_named(request: Message, opening: Opening, filled: frozenset[str]) -> str:
    """As `_differing`, of the fields that a request and an opening have under the same name, and of the opening's own.

    The submission in the opening of a prediction is that of the model.
    """
    asked = type(opening)()
    for field, value in request.ListFields():
        if field.name not in asked.DESCRIPTOR.fields_by_name or field.name in ("submission", "signed"):
            continue
        if isinstance(value, Message):
            getattr(asked, field.name).CopyFrom(value)
        elif isinstance(value, str | int | float):
            setattr(asked, field.name, value)
        else:
            getattr(asked, field.name).extend(value)
    if isinstance(request, jobs_pb2.AlignRequest):
        asked.submission = request.submission
    return _differing(asked, opening, filled)


def _differing(asked: Message, drafted: Message, filled: frozenset[str]) -> str:
    """The name of a field whose value in the draft is not the one asked for; empty if there is none.

    `filled`: fields that may have a value although none was asked for; of a message within the draft, all may.
    """
    given = {field.name for field, _ in asked.ListFields()}
    for name in (field.name for field in asked.DESCRIPTOR.fields):
        mine, theirs = getattr(asked, name), getattr(drafted, name)
        if name not in given and name in filled:
            continue
        if name in given and filled and isinstance(mine, Message):
            inner = _differing(mine, theirs, frozenset(field.name for field in mine.DESCRIPTOR.fields))
            if inner or not drafted.HasField(name):
                return f"{name}.{inner}" if inner else name
        elif mine != theirs:
            return name
    return ""
