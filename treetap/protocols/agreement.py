"""The job as all its parties hold it: its digest, by which each party compares its own job with its peers'.

A coordinator tells every party what the job is, at each attempt anew. A party notes the digest of what it was told
first, takes no other job at a later attempt, and no message of a peer that was told another. The digest is of a
document, not of bytes of a message: two encodings of one job have one digest.

On its way from its operator a job is named, drafted by the coordinator, compared, signed. The operator chooses the
job's name and draws the nonce of its submission, so that it knows what it signs. What only the coordinator knows, such
as the parties of a model to predict with, comes as a draft of the opening. The operator compares it with what it asked
for and signs the digest of the job.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict
from typing import Any, TypeAlias, TypeVar

from google.protobuf.message import Message

from treetap.errors import Malformed, Refused
from treetap.protocols.prediction import options_of
from treetap.protocols.registry import prediction_name, training_name
from treetap.wire.frame import Opening
from treetap.wire.v2 import alignment_pb2, jobs_pb2, prediction_pb2, setup_pb2

#: Fields of an opening that are no part of the job: parsed on their own, of one attempt at it, or its signature.
_APART = frozenset({"parameters", "peers", "away", "signed"})
_PURPOSE = b"treetap job\n"  # no other signature of the same key is of bytes that begin so


def job_document(job: str, opening: Opening) -> dict[str, Any]:
    """The job that a step opens, as JSON types: its name, submission, parties, table, protocol and every parameter.

    Addresses, the attempt, and the parties that are away from one attempt are no part of it.

    Raises:
        Malformed: the step has fields that this release does not know, and which nobody could compare.
    """
    known = deepcopy(opening)
    known.DiscardUnknownFields()
    if known.ByteSize() != opening.ByteSize():
        raise Malformed(
            "the job has fields that this release does not know: is the coordinator, or the operator, of a later one?"
        )
    if isinstance(opening, setup_pb2.Prepare):
        from treetap.protocols.job_spec import params_of  # of jobs, as the rest of the mathematics

        own = {"protocol": training_name(opening.spec), "parameters": plain_parameters(params_of(opening.spec))}
        return {"job": job, "submission": opening.submission, **own, **_fields(opening.spec)}
    if isinstance(opening, alignment_pb2.OpenPreview):
        return {"job": job, "preview": True, **_fields(opening)}
    own = {"protocol": prediction_name(opening), "parameters": plain_parameters(options_of(opening))}
    return {"job": job, **own, **_fields(opening)}


def plain_parameters(parameters: Any) -> dict[str, Any]:
    """The parameters or options of a protocol, a dataclass, as JSON types."""
    return {name: _plain(value) for name, value in asdict(parameters).items()}


def job_digest(job: str, opening: Opening) -> bytes:
    """SHA-256 of the document as sorted JSON, 32 bytes; raises as `job_document` does."""
    text = json.dumps(job_document(job, opening), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).digest()


def statement(digest: bytes) -> bytes:
    """The bytes that an operator signs with their time: a purpose, and the job's digest (32 bytes)."""
    return _PURPOSE + digest


def attempt_digest(digest: bytes, opening: Opening) -> bytes:
    """The digest of an attempt, 32 bytes: the job's and, of a prediction, of the parties that it goes on without."""
    away = sorted(opening.away) if isinstance(opening, prediction_pb2.OpenModel) else []
    return hashlib.sha256(digest + json.dumps(away).encode()).digest() if away else digest


def check_peer(job: str, me: str, peer: str, mine: bytes, theirs: bytes) -> None:
    """`Refused` unless a peer has sent the digest of this party's own attempt."""
    if theirs != mine:
        raise Refused(
            f"job {job} is not the same at {peer} and at {me} (digests {_shown(theirs)} and {_shown(mine)}): the "
            "coordinator has told them different jobs, or they run different releases; nothing of it was used"
        )


def _shown(digest: bytes) -> str:
    return digest.hex()[:12] or "none"


def _fields(message: Message) -> dict[str, Any]:
    """Fields of a message by name, as JSON types, those apart from the job left out."""
    return {
        field.name: _plain(getattr(message, field.name))
        for field in message.DESCRIPTOR.fields
        if field.name not in _APART
    }


def _plain(value: Any) -> Any:
    """A value as JSON types; None for a number that is none, as an absent one is."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value if isinstance(value, str | float | int | None) else [_plain(item) for item in value]


Request: TypeAlias = jobs_pb2.SubmitRequest | jobs_pb2.PredictRequest | jobs_pb2.AlignRequest
Asked = TypeVar("Asked", jobs_pb2.SubmitRequest, jobs_pb2.PredictRequest, jobs_pb2.AlignRequest)
#: Fields of a prediction's opening that the coordinator fills in where the request leaves them open.
_FILLED = frozenset(
    {
        *(
            "table",
            "recipient",
            "feature_parties",
            "alignment",
            "join",
            "block",
            "submission",
            "prediction",
            "parameters",
        ),
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
    field = next(one.name for one in jobs_pb2.DraftRequest.DESCRIPTOR.fields if one.message_type is request.DESCRIPTOR)
    given: dict[str, Any] = {field: request}
    return jobs_pb2.DraftRequest(**given)


def checked(request: Request, drafted: jobs_pb2.Drafted) -> Opening:
    """The opening of a draft, if it is of the job that was asked for.

    Raises:
        Refused: the coordinator has put another value where the operator has named one, or one where it may name none.
    """
    opening: Opening
    if isinstance(request, jobs_pb2.SubmitRequest):
        opening, asked = drafted.prepare, setup_pb2.Prepare(spec=request.spec, submission=request.submission)
        asked.spec.base_submission = opening.spec.base_submission  # of other models, which only the coordinator knows
        asked.spec.replaced_submission = opening.spec.replaced_submission
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
