"""Parties that write ids differently: with the same rules they find each other, with others the job ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.alignment.previews import COUNTS
from tests.alignment.test_protocol import NAMES, tables
from tests.replay import HERE, ORACLE, PARAMS
from tests.serving.served import EXACT, IDS, ask, config, scores, serve
from tests.simulator import Federation, failed, finished
from tests.worlds import PARTIES, assert_oracles_model, spec
from treetap.ops.forget.forgetting import forget
from treetap.protocols.prediction import predict_request
from treetap.tables.record_ids import Ids
from treetap.wire.v2 import serving_pb2

HOLDER, B, C = PARTIES
ORDERS = {HOLDER: ["nfkc", "casefold", "strip"], B: ["casefold", "strip", "nfkc"], C: ["strip", "nfkc", "casefold"]}
PREVIEWED = {name: {"columns": {"preview": "records"}} for name in PARTIES}


def _written(party: str, text: str) -> str:
    """An id as a party writes it."""
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in text)
    return {HOLDER: f"\u200b{text.upper()}", B: wide, C: f"{text}\ufeff"}[party]


def _differently() -> dict[str, tuple[list[str], dict[str, pa.Table]]]:
    """The tables of the world, each party's ids in its own way."""
    made = {}
    for party, (columns, own) in HERE.tables.items():
        ids = {name: [_written(party, text) for text in table.column("id").to_pylist()] for name, table in own.items()}
        made[party] = (
            columns,
            {name: table.set_column(0, "id", pa.array(ids[name])) for name, table in own.items()},
        )
    return made


@pytest.mark.parametrize("alignment", ["psi", "sorted-ids"])
async def test_the_model_is_that_of_equal_ids(alignment: str, tmp_path: Path) -> None:
    """Trained, predicted, named in a file, served, noted and forgotten by any form of an id."""
    serves = {HOLDER: config(decision_days=9)}
    federation = Federation(tmp_path, _differently(), normalise=ORDERS, serve=serves, policies=PREVIEWED, record="both")
    finished(await federation.train(spec(PARAMS, obfuscation="standard", alignment=alignment)))
    assert_oracles_model(federation.states, ORACLE)
    (tmp_path / HOLDER / "some.txt").write_text(f"{IDS[4].upper()}\n{_written(B, IDS[1])}\n")
    predicted = await federation.predict(predict_request(model="job", records_file="some.txt"))
    table = pq.read_table(predicted.predictions)
    assert table.column("id").to_pylist() == [IDS[1], IDS[4]]
    assert table.column("score").to_pylist() == pytest.approx([EXACT[1], EXACT[4]])
    await serve(federation)
    answer = await ask(federation, _written(C, IDS[2]), "\u200b", IDS[3])
    assert [each.status for each in answer.predictions] == [
        serving_pb2.PREDICTED,
        serving_pb2.UNKNOWN_ID,
        serving_pb2.PREDICTED,
    ]
    assert answer.predictions[0].id == _written(C, IDS[2])
    assert scores([answer]) == pytest.approx([EXACT[2]])
    await federation.close()
    outcome = forget(federation.configs[HOLDER], Ids.of([_written(B, IDS[2])]), dry=False, transcripts=True)
    assert outcome.removed == ["s"]
    assert sum(had for _, had, _ in outcome.files.values()) == 2  # of what was asked, and of what was answered
    assert pq.read_table(predicted.predictions).num_rows == 2


@pytest.mark.parametrize("way", ["psi", "sorted-ids", "count", "records"])
async def test_other_rules_are_refused_with_both_lists(way: str, tmp_path: Path) -> None:
    """Before an identifier leaves; also rules beside none."""
    rules = {HOLDER: ["casefold"], B: ["casefold"], C: ["strip", "casefold"]}
    federation = Federation(tmp_path, HERE.tables, normalise=rules, policies=PREVIEWED)
    lists = ("blinded_ids", "sum_of_list")
    sent: list[str] = []
    federation.hook = lambda message: sent.append(message.word)
    if way in ("count", "records"):
        status = await federation.preview(answer=way)
    else:
        status = await federation.train(spec(PARAMS, obfuscation="standard", alignment=way))
    failed(status, "ids of one customer would differ", bad_input=True)
    assert "normalise = ['casefold']" in status.error
    assert "normalise = ['casefold', 'strip']" in status.error
    assert not set(sent) & set(lists)


async def test_rules_can_make_two_customers_one(tmp_path: Path) -> None:
    """Of two tables nobody sees it: docs/threats.md says so."""
    rules = {name: ["digits"] for name in NAMES[:2]}
    ids = [["A12", "A7", "A8"], ["B12", "B7", "C9"]]
    federation = Federation(tmp_path, tables(ids), policies=COUNTS, normalise=rules)
    assert (await federation.preview()).common.records == 2


async def test_an_eval_table_has_the_rules_of_the_training(tmp_path: Path) -> None:
    """They are aligned in one run, and a record of both is known, however it is written."""
    evaluated = {name: own["train"] for name, (_, own) in HERE.tables.items()}
    own_tables = {name: (columns, own | {"eval": evaluated[name]}) for name, (columns, own) in _differently().items()}
    federation = Federation(tmp_path, own_tables, normalise=ORDERS)
    job = spec(PARAMS, obfuscation="standard", alignment="psi", eval_table="eval")
    failed(await federation.train(job), "16 of 16 records of the eval table are trained on", bad_input=True)
    own = federation.configs[HOLDER].tables
    other = own["eval"].model_copy(update={"normalise": ["digits"]})
    federation.configs[HOLDER] = federation.configs[HOLDER].model_copy(update={"tables": {**own, "eval": other}})
    federation.restart(HOLDER)
    failed(await federation.train(job, job="again"), "table 'eval' has normalise = ['digits']", bad_input=True)


async def test_a_prediction_has_the_rules_of_its_training(tmp_path: Path) -> None:
    federation = Federation(tmp_path, HERE.tables, normalise=ORDERS)
    finished(await federation.train(spec(PARAMS, obfuscation="standard", alignment="psi")))
    changed: dict[str, Any] = {}
    for name, table in federation.configs[B].tables.items():
        changed[name] = table.model_copy(update={"normalise": []})
    federation.configs[B] = federation.configs[B].model_copy(update={"tables": changed})
    federation.restart(B)
    said = "has normalise = [], and that of the training had normalise = ['nfkc', 'casefold', 'strip']"
    failed(await federation.predict(predict_request(model="job")), said, bad_input=True)
