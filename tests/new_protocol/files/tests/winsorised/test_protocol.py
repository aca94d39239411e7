"""Averaged trees of winsorised labels: trained apart and killed on the way, the model is that of the joined table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.commands.command import write
from tests.forest.oracle import forest_train
from tests.oracle import oracle_predict
from tests.simulator import Federation, Message, run
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores, spec, world
from treetap.commands.jobs.job_file import JobFile
from treetap.errors import ConfigError
from treetap.protocols.job_spec import params_of
from treetap.protocols.prediction import predict_request
from treetap.protocols.winsorised import WinsorisedParams, predict_centrally
from treetap.strict import load
from treetap.tables.reading import read_table
from treetap.wire.frame import name_of
from treetap.wire.transcript import TranscriptReader, open_message
from treetap.wire.v2.control_pb2 import StepRequest
from treetap.wire.v2.exchange_pb2 import PeerMessage
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

PARAMS = WinsorisedParams(n_estimators=2, max_depth=3, max_bin=8, subsample=0.8, trim=0.2)
HERE = world(60, (2, 2, 1), objective="reg:squarederror", missing=0.1, seed=4)
ORACLE = forest_train(HERE.parties, list(PARAMS.winsorised(HERE.y)), PARAMS.of_forest())
LABEL_HOLDER, FEATURE, LAST = PARTIES


def _received(transcripts: Path) -> dict[str, TranscriptRecord]:
    """The last record of each content that a party received."""
    records = (record for record in TranscriptReader(transcripts) if record.kind == TranscriptRecord.RECEIVED)
    return {record.step: record for record in records}


def test_a_job_that_is_killed_gives_the_oracles_model(tmp_path: Path) -> None:
    """Killed in its second tree and resumed, the job finds the model, by which the records are predicted."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, record="received")

        def hook(message: Message) -> None:
            if message.word == "build_histograms" and federation.jobs.status("job")[0].round == 2:
                federation.hook = None
                federation.kill(FEATURE)

        federation.hook = hook
        assert (await federation.train(spec(PARAMS))).state == "interrupted"
        federation.start(FEATURE)
        resumed = await federation.resume()
        assert (resumed.state, resumed.error) == ("finished", "")
        assert_oracles_model(federation.states, ORACLE)
        predicted = await federation.predict(predict_request("interactive", model="job", block=5))
        assert (predicted.state, predicted.error) == ("finished", "")
        assert_oracles_scores(predicted.predictions, ORACLE, HERE.newcomers, len(HERE.y))

        found = _received(federation.state(FEATURE) / "transcripts" / "job")
        step, body = open_message(found["take_targets"]), open_message(found["encrypted_targets"])
        assert isinstance(step, StepRequest)
        assert isinstance(body, PeerMessage)
        assert (name_of(step), name_of(body)) == ("take_targets", "encrypted_targets")
        assert step.protocol.HasField("winsorised")
        assert set(found["take_targets"].bytes_by_class) == {"CONTROL"}
        sizes = found["encrypted_targets"].bytes_by_class
        assert set(sizes) == {"CONTROL", "CIPHERTEXT"}
        assert sizes["CIPHERTEXT"] >= len(HERE.y) * 2 * 1024 // 8
        await federation.close()

    run(main())


def test_the_joined_table_gives_the_oracles_scores(tmp_path: Path) -> None:
    """An experiment's centralised model predicts what the oracle does."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        before, after = (
            [
                (name, read_table(config.tables[table], with_label=False, missing=None))
                for name, config in federation.configs.items()
            ]
            for table in ("train", "predict")
        )
        scores, _ = predict_centrally(before, after, HERE.y, 0, PARAMS)
        assert scores == pytest.approx(np.array(oracle_predict(ORACLE, HERE.newcomers)))
        await federation.close()

    run(main())


def test_a_job_file_has_its_parameters(tmp_path: Path) -> None:
    """A job file names them, and has them checked."""
    job = {"protocol": "winsorised", "label_holder": "bank", "feature_parties": ["telco"], "trim": 0.1, "max_depth": 4}
    spec = load(write(tmp_path / "job.toml", {"job": job}), JobFile).to_spec()
    assert params_of(spec).to_dict() == replace(WinsorisedParams(), trim=0.1, max_depth=4).to_dict()
    with pytest.raises(ConfigError, match=r"trim must be a number in \[0, 0.5\), not 0.5"):
        load(write(tmp_path / "job.toml", {"job": {**job, "trim": 0.5}}), JobFile)
    with pytest.raises(ConfigError, match="protocol 'boosting' has no parameter trim"):
        load(write(tmp_path / "job.toml", {"job": {**job, "protocol": "boosting"}}), JobFile)
