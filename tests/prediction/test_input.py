"""Predictions that cannot be made: told whose input is wrong; the model stays, nothing else does."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.replay import HERE, JOB, ask, with_word
from tests.simulator import Federation
from tests.worlds import PARTIES
from treetap.errors import ConfigError, UnknownJob
from treetap.protocols.prediction import predict_request

LABEL_HOLDER, FEATURE, OTHER = PARTIES
Prepare = Callable[[Federation], None]


def _nothing(_: Federation) -> None:
    """The world is as it was."""


def _write(name: str, text: str) -> Prepare:
    def prepare(federation: Federation) -> None:
        (federation.folder / LABEL_HOLDER / name).write_text(text)

    return prepare


def _retable(party: str, change: Callable[..., object]) -> Prepare:
    def prepare(federation: Federation) -> None:
        path = federation.configs[party].tables["predict"].path
        pq.write_table(change(pq.read_table(path)), path)

    return prepare


def _restart(party: str, **changes: object) -> Prepare:
    def prepare(federation: Federation) -> None:
        federation.configs[party] = federation.configs[party].model_copy(update=changes)
        federation.start(party)

    return prepare


CASES: dict[str, tuple[Prepare, dict[str, Any], str]] = {
    "no such table": (_nothing, {"table": "later"}, "has no table 'later'; its log lists those that it has"),
    "no such file of ids": (_nothing, {"records_file": "ids.txt"}, r"ids\.txt: there is no such file"),
    "a file elsewhere": (_nothing, {"records_file": "../coordinator/x"}, r"x is not below the data folder"),
    "an absolute path": (_nothing, {"records_file": "/etc/passwd"}, r"/etc/passwd is not below the data folder"),
    "no name of a file": (_nothing, {"records_file": "ids\0.txt"}, r"'ids\\x00\.txt' cannot be a file's name"),
    "no data folder": (
        _restart(LABEL_HOLDER, data=None),
        {"records_file": "ids.txt"},
        r"label-holder: a file of records needs `data = FOLDER` in the configuration",
    ),
    "an unknown id": (_write("ids.txt", "r00016\nsecret-id\n"), {"records_file": "ids.txt"}, r"ids\.txt: .*'predict'"),
    "an empty file": (_write("ids.txt", "\n"), {"records_file": "ids.txt"}, r"ids\.txt: names no record"),
    "other ids": (
        _retable(FEATURE, lambda t: t.slice(1)),
        {},
        r"the ids of feature-b .* are not those of label",
    ),
    "a column less": (_retable(OTHER, lambda t: t.drop_columns("c0")), {}, r"feature-c: .*: has no column 'c0'"),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", CASES)
async def test_a_prediction_on_bad_input_fails_and_leaves_the_model(case: str, tmp_path: Path) -> None:
    """The operator reads what is wrong, but no id; no file of predictions, no session, and the model is there."""
    prepare, request, message = CASES[case]

    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    prepare(federation)
    status = await federation.predict(predict_request(model="job", job="p", **request))
    assert (status.state, status.bad_input) == ("failed", True), status.error
    assert re.search(message, status.error), status.error
    assert not re.search("secret-id|r000", status.error)
    for party, state in federation.states.items():
        assert list((state / "predictions").iterdir()) == []
        assert (state / "models" / "job" / "manifest.json").is_file()
        assert list((state / "jobs").iterdir()) == []
        with pytest.raises(UnknownJob, match="holds no job 'p'"):
            await ask(federation, party, with_word("account", job="p"))


async def test_a_prediction_needs_a_finished_training(tmp_path: Path) -> None:
    """Unknown models, predictions and unfinished jobs are no models; a name that is taken or no name is refused."""
    federation = Federation(tmp_path, HERE.tables)
    for model in ("job", ""):
        with pytest.raises(UnknownJob):
            await federation.predict(predict_request(model=model))
    await federation.train(JOB)
    assert (await federation.predict(predict_request(model="job", job="p"))).state == "finished"
    with pytest.raises(UnknownJob, match="there is no model 'p': the job of that name is no training"):
        await federation.predict(predict_request(model="p"))
    with pytest.raises(ConfigError, match=r"there is a job 'p' already \("):
        await federation.predict(predict_request(model="job", job="p"))
    with pytest.raises(ConfigError, match="'No name' is not a name for a job"):
        await federation.predict(predict_request(model="job", job="No name"))


async def test_a_party_that_lost_its_shard_says_so(tmp_path: Path) -> None:
    """Without one party's shard there is no prediction; the party and the model are named."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    (federation.state(OTHER) / "models" / "job").rename(federation.folder / "lost")
    status = await federation.predict(predict_request(model="job", job="p"))
    assert status.state != "finished"
    assert re.search(r"there is no model 'job' in .*feature-c", status.error), status.error
