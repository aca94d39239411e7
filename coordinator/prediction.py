"""Predictions: what an operator asked for as the parties are told it, and which protocol does it."""

from __future__ import annotations

from coordinator.protocols import PREDICT, Scores
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster
from coordinator.serving import serve
from treetap.protocols.job_spec import ENCRYPTED, check_prediction
from treetap.wire.v1 import interactive_pb2, jobs_pb2, setup_pb2

#: Records per block of a prediction where the request names none, by protocol: entries are many and large. One lattice
#: ciphertext holds 8192 or 16384 records, and a block never has more than it does.
BLOCKS = {"interactive": 65_536, "eini": 1024, "eini-lattice": 16_384}
#: Seconds after which a party that does not answer counts as away, where the request names none.
AWAY_DEADLINE_S = 30.0


def opening_of(
    request: jobs_pb2.PredictRequest, spec: setup_pb2.JobSpec, submission: str, word: str
) -> interactive_pb2.OpenModel:
    """The opening of a prediction with the model of a training job; `ConfigError` where nobody could do it.

    `submission`: of the training; `word`: of this prediction. What the request leaves open is as in training, and one
    round per level over all trees; and who does not answer interrupts it.
    """
    protocol = request.protocol or "interactive"
    paillier = protocol == "eini"
    form = request.form or ("" if protocol in ENCRYPTED else "batched")
    key_bits = request.key_bits or (spec.key_bits if paillier else 0)
    obfuscation = spec.obfuscation if paillier else ""
    policy = request.away_policy or "fail"
    opening = interactive_pb2.OpenModel(
        model=request.model,
        table=request.table or "predict",
        label_holder=spec.label_holder,
        feature_parties=spec.feature_parties,
        records_file=request.records_file,
        alignment=spec.alignment,
        block=request.block or BLOCKS.get(protocol, 0),
        submission=submission,
        protocol=protocol,
        form=form,
        key_bits=key_bits,
        obfuscation=obfuscation,
        away_policy=policy,
        away_deadline_s=request.away_deadline_s or (0 if policy == "fail" else AWAY_DEADLINE_S),
        prediction=word,
        explain=request.explain,
        explain_limit=request.explain_limit,
        attributions=request.attributions,
        serve=request.serve,
    )
    check_prediction(opening)
    return opening


async def predict(
    roster: Roster, opening: interactive_pb2.OpenModel, progress: Progress
) -> interactive_pb2.WrittenPredictions:
    """Conduct a prediction by the protocol that its opening names; one that serves ends with an error only."""
    progress.scorer = opening.label_holder
    scores = PREDICT[opening.protocol]
    if opening.serve:
        await serve(roster, opening, scores, progress)
    return await _predict_table(roster, opening, scores, progress)


async def _predict_table(
    roster: Roster, opening: interactive_pb2.OpenModel, scores: Scores, progress: Progress
) -> interactive_pb2.WrittenPredictions:
    """Block after block of the records that were asked for, then the file."""
    opened = await scores.begin(roster, opening, progress)
    progress.phase("predict")
    block, blocks = 0, 1
    while block < blocks:
        progress.tree(block, blocks)
        blocks = await scores.score(roster, opening, opened, block, progress)
        block += 1
    progress.phase("write")
    written = await roster.ask(opening.label_holder, "write_predictions", interactive_pb2.WritePredictions())
    return written.written_predictions
