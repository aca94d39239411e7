"""Drafts of jobs: an operator signs what it asked for, and nothing that the coordinator has put beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.replay import JOB
from tests.worlds import PARTIES
from treetap.coordinator.jobs import Jobs
from treetap.coordinator.prediction import opening_of, preview_of
from treetap.errors import ConfigError, Refused
from treetap.names import NAME
from treetap.protocols.drafts import checked, named, to_draft
from treetap.protocols.prediction import predict_request
from treetap.wire.v2 import jobs_pb2, setup_pb2

TRAIN = named(jobs_pb2.SubmitRequest(job="job", spec=JOB))
PREDICT = named(predict_request("eini", model="job", key_bits=2048, table="predict"))
ALIGN = named(jobs_pb2.AlignRequest(answer="count", table="train", parties=PARTIES))


def _draft(request: Any) -> jobs_pb2.Drafted:
    """The draft of an honest coordinator."""
    if isinstance(request, jobs_pb2.SubmitRequest):
        prepare = setup_pb2.Prepare(spec=request.spec, submission=request.submission)
        prepare.spec.base_submission = "9" if request.spec.base_model else ""
        return jobs_pb2.Drafted(prepare=prepare)
    if isinstance(request, jobs_pb2.PredictRequest):
        return jobs_pb2.Drafted(open_model=opening_of(request, JOB, "5", request.submission))
    return jobs_pb2.Drafted(open_preview=preview_of(request))


@pytest.mark.parametrize("request_", [TRAIN, PREDICT, ALIGN], ids=["train", "predict", "align"])
def test_an_honest_draft_is_signed(request_: Any) -> None:
    """It is named, and its submission has a nonce of its own."""
    assert NAME.match(request_.job)
    assert request_.submission != named(request_).submission
    assert checked(request_, _draft(request_)).ByteSize() > 0
    assert to_draft(request_).WhichOneof("request") in ("train", "predict", "align")


def test_names_are_made_of_what_is_asked() -> None:
    """As long as a name may be."""
    assert PREDICT.job.startswith("predict-job-")
    serve = named(predict_request("interactive", model="m" * 60, serve=True))
    assert NAME.match(serve.job)
    assert serve.job.startswith("serve-mmm")
    assert ALIGN.job.startswith("align-")


@pytest.mark.parametrize(
    ("request_", "field", "change"),
    [
        (TRAIN, "spec", lambda draft: setattr(draft.prepare.spec, "table", "other")),
        (TRAIN, "spec", lambda draft: setattr(draft.prepare.spec, "eval_table", "more")),
        (TRAIN, "spec", lambda draft: draft.prepare.spec.feature_parties.append("other")),
        (TRAIN, "submission", lambda draft: setattr(draft.prepare, "submission", "1")),
        (TRAIN, "spec", lambda draft: draft.prepare.spec.parameters.forest.SetInParent()),
        (TRAIN, "spec", lambda draft: draft.ClearField("prepare")),
        (PREDICT, "evaluate", lambda draft: setattr(draft.open_model, "evaluate", True)),
        (PREDICT, "table", lambda draft: setattr(draft.open_model, "table", "other")),
        (PREDICT, "serve", lambda draft: setattr(draft.open_model, "serve", True)),
        (PREDICT, "model", lambda draft: setattr(draft.open_model, "model", "other")),
        (PREDICT, "records_file", lambda draft: setattr(draft.open_model, "records_file", "all")),
        (PREDICT, "prediction", lambda draft: setattr(draft.open_model, "prediction", "1")),
        (
            PREDICT,
            "parameters.eini.key_bits",
            lambda draft: setattr(draft.open_model.parameters.eini, "key_bits", 1024),
        ),
        (PREDICT, "parameters.eini", lambda draft: draft.open_model.parameters.masked.SetInParent()),
        (PREDICT, "away", lambda draft: draft.open_model.away.append("feature-b")),
        (ALIGN, "answer", lambda draft: setattr(draft.open_preview, "answer", "records")),
        (ALIGN, "table", lambda draft: setattr(draft.open_preview, "table", "other")),
        (ALIGN, "parties", lambda draft: draft.open_preview.parties.append("other")),
        (ALIGN, "submission", lambda draft: setattr(draft.open_preview, "submission", "1")),
    ],
)
def test_another_draft_is_not_signed(request_: Any, field: str, change: Callable[[jobs_pb2.Drafted], None]) -> None:
    """The error names the field."""
    draft = _draft(request_)
    change(draft)
    with pytest.raises(
        Refused, match=rf"draft of job {request_.job} is not what was asked for: {field}.* differs; not"
    ):
        checked(request_, draft)


@pytest.mark.parametrize("nonce", ["", "7x", "-1", "1" * 21])
def test_a_job_without_a_nonce_is_refused(nonce: str, tmp_path: Any) -> None:
    """Its operator has another release."""
    from treetap.coordinator.runtime.journal import Journal
    from treetap.coordinator.runtime.metrics import CoordinatorMetrics

    jobs = Jobs("coordinator", {}, None, Journal(tmp_path), 5.0, CoordinatorMetrics("coordinator"))  # type: ignore[arg-type]
    calls: list[tuple[Callable[[Any], str], Any]] = [(jobs.submit, TRAIN), (jobs.predict, PREDICT), (jobs.align, ALIGN)]
    for call, request in calls:
        bare = type(request)()
        bare.CopyFrom(request)
        bare.submission = nonce
        with pytest.raises(ConfigError, match="has no nonce of its submission"):
            call(bare)
