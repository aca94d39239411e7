"""The course of a prediction, and of a preview of an alignment, which ends with it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from treetap.coordinator import protocols
from treetap.coordinator.protocols import PredictionCourse, align, take_turns
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster, answered
from treetap.coordinator.serving import serve
from treetap.errors import ConfigError, Malformed
from treetap.process.together import together
from treetap.protocols.alignment import check_common, check_preview, count_turns, turns
from treetap.protocols.codec import params_in, write_params
from treetap.protocols.job_spec import params_of
from treetap.protocols.prediction import check_degraded_serving, check_prediction, degrades_serving, present
from treetap.protocols.registry import PREDICTION, name_in, prediction, training, training_name
from treetap.wire.v2 import alignment_pb2, jobs_pb2, prediction_pb2, setup_pb2

log = logging.getLogger(__name__)
#: Seconds after which a party that does not answer counts as away, where the request names none.
AWAY_DEADLINE_S = 30.0


def opening_of(
    request: jobs_pb2.PredictRequest, spec: setup_pb2.JobSpec, submission: str, prediction_nonce: str
) -> prediction_pb2.OpenModel:
    """The opening of a prediction with the model of a training job; `ConfigError` where no federation could do it.

    `submission`: of the training; `prediction_nonce`: of this prediction. Fields that the request leaves open are as in
    training, or the protocol's default; the default policy is fail.
    """
    trained_by = training_name(spec)
    offered = training(trained_by).predicts
    field = request.parameters.WhichOneof("protocol")
    name = name_in(request.parameters, PREDICTION) if field else offered[0]
    protocol = prediction(name)
    if name not in offered:
        raise ConfigError(
            f"protocol = {name!r}: does not predict with models of {trained_by}; use {' or '.join(offered)}"
        )
    # what the request leaves open follows from the training: all parties must score by the same numbers
    asked = params_in(getattr(request.parameters, protocol.field), protocol.options)
    policy = request.away_policy or "fail"
    # The party that gets the scores; `ConfigError` where the request names another than there can be.
    recipient = request.recipient or spec.aggregator
    parties = [spec.aggregator, *spec.feature_parties]
    if recipient not in parties:
        raise ConfigError(f"recipient = {recipient!r}: is no party of model {request.model} ({', '.join(parties)})")
    if recipient != spec.aggregator and not training(trained_by).one_role:
        raise ConfigError(
            f"recipient = {recipient!r}: the scores of a model of {trained_by} go to its label holder, "
            f"{spec.aggregator}; leave it out"
        )
    opening = prediction_pb2.OpenModel(
        model=request.model,
        table=request.table or "predict",
        recipient=recipient,
        feature_parties=[party for party in (spec.aggregator, *spec.feature_parties) if party != recipient],
        records_file=request.records_file,
        alignment=spec.alignment,
        join=spec.join,
        block=request.block or protocol.block,
        submission=submission,
        away_policy=policy,
        away_deadline_s=request.away_deadline_s or (0 if policy == "fail" else AWAY_DEADLINE_S),
        prediction=prediction_nonce,
        explain=request.explain,
        explain_limit=request.explain_limit,
        attributions=request.attributions,
        evaluate=request.evaluate,
        serve=request.serve,
        reasons=request.reasons,
        format=request.format,
        look_up=request.look_up,
    )
    write_params(asked.completed(spec), getattr(opening.parameters, protocol.field))
    check_prediction(opening)
    if degrades_serving(opening):
        check_degraded_serving(opening, params_of(spec).absence)
    return opening


async def predict(
    roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress, beside: Callable[[], Roster]
) -> prediction_pb2.WrittenPredictions | None:
    """Conduct a prediction by the protocol that its opening names; `beside`: see `serve`.

    Returns None where it served and is to go on in another attempt; serving ends with an error only.
    """
    progress.scorer = opening.recipient
    if opening.serve:
        await serve(roster, opening, progress, beside)
        return None
    return await _predict_table(roster, opening, protocols.prediction(opening), progress)


async def _predict_table(
    roster: Roster, opening: prediction_pb2.OpenModel, course: PredictionCourse, progress: Progress
) -> prediction_pb2.WrittenPredictions:
    """Score the requested records block after block, then have the label holder write the file."""
    opened = await course.begin(roster, opening, progress)
    progress.phase("predict")
    block, blocks = 0, 1
    while block < blocks:
        progress.round(block, blocks)
        blocks = await course.score(roster, opening, opened, block, progress)
        block += 1
    progress.phase("write")
    written = await roster.ask(opening.recipient, "write_predictions", prediction_pb2.WritePredictions())
    outcome: prediction_pb2.WrittenPredictions = answered(opening.recipient, written, "written_predictions")
    return outcome


def preview_of(request: jobs_pb2.AlignRequest) -> alignment_pb2.OpenPreview:
    """The opening of a preview; `ConfigError` where no federation could do it."""
    opening = alignment_pb2.OpenPreview(
        answer=request.answer or "count",
        table=request.table or "train",
        parties=request.parties,
        submission=request.submission,
    )
    check_preview(opening)
    return opening


async def answer(roster: Roster, opening: alignment_pb2.OpenPreview, progress: Progress) -> None:
    """Conduct a preview, and set its answer in the status.

    1. Every party loads its ids, and charges the preview to its account once all have.
    2. The turns of the count, or those of a job's alignment.
    3. Of records, every party writes its own rows.
    """
    progress.phase("prepare")
    opening.peers.extend(roster.peers())
    await roster.ask_all(roster.names, "open_preview", opening)
    await roster.ask_all(roster.names, "charge_preview")
    progress.phase("align")
    counting, first = opening.answer == "count", opening.parties[0]
    plan = (count_turns if counting else turns)(len(opening.parties))
    answers = await take_turns(roster, opening.parties, plan, progress.round)
    if counting:
        counted = answered(first, answers["count_ids"], "counted_ids")
        progress.status.common.CopyFrom(check_common(first, counted.common))
        _say(progress)
        return
    progress.phase("write")
    results = await roster.ask_all(roster.names, "write_rows")
    written = {party: answered(party, result, "written_rows") for party, result in results.items()}
    if len({rows.common.records for rows in written.values()}) > 1:
        raise Malformed(f"{', '.join(written)} do not agree how many records are common")
    progress.status.common.CopyFrom(check_common(first, written[first].common))
    progress.status.rows.extend(jobs_pb2.PartyRows(party=party, path=rows.path) for party, rows in written.items())
    _say(progress)


def _say(progress: Progress) -> None:
    """Log what this coordinator and its operator now know."""
    status = progress.status
    what = f"fewer than {status.common.fewer_than}" if status.common.fewer_than else str(status.common.records)
    log.warning("job %s: a leak by a preview: this coordinator knows of %s records in common", status.job, what)


async def open_models(
    roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress
) -> prediction_pb2.OpenedModel:
    """Have every party open the model, and align the records; returns the recipient's description of the model.

    If names are requested, every present feature party then sends its names to the label holder or withholds them.
    If reasons are to be given, all number the columns of the model.
    """
    progress.phase("align")
    results = await roster.ask_all(roster.names, "open_model", opening)
    answers = {party: answered(party, result, "opened_model") for party, result in results.items()}
    progress.opened(answers)
    await align(roster, roster.names, opening)
    if opening.explain:
        naming = roster.ask_all(present(opening), "name_features")
        await together(roster.ask(opening.recipient, "take_names"), naming)
    if opening.reasons:
        await roster.ask_all(roster.names, "number_columns")
    opened: prediction_pb2.OpenedModel = answers[opening.recipient]
    return opened


async def score_block(
    roster: Roster, recipient: str, step: str, block: int, others: Coroutine[Any, Any, Any], progress: Progress
) -> int:
    """Have the recipient score a block by a step while the `others` do theirs; returns the number of blocks.

    Each sends on what it has received while those before it still work. One block is under way at a time, so no party
    holds more than a block.
    """
    answer, _ = await together(roster.ask(recipient, step, round=block), others)
    scored: prediction_pb2.ScoredBlock = answered(recipient, answer, "scored_block")
    progress.records(scored.done, scored.total)
    return scored.blocks
