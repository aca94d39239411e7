"""Ids of several keys: each finds records that none before it has matched, and a value of two records finds none."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from tests.alignment.previews import ROWS
from tests.alignment.test_protocol import NAMES, PARAMS, job
from tests.growth.evaluated import with_eval_table
from tests.oracle import oracle_predict
from tests.serving.served import ask, config, serve
from tests.simulator import Federation, failed, finished
from tests.worlds import PARTIES, World, assert_oracles_model, lacking, spec, world
from treetap.names import MOST_KEYS
from treetap.ops.forget.forgetting import forget
from treetap.protocols.prediction import predict_request
from treetap.tables.config import TableConfig
from treetap.tables.record_ids import Ids
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, serving_pb2

HOLDER, B, C = PARTIES
BOOSTING = BoostingParams(n_estimators=2, max_depth=3, max_bin=6)
COLUMNS = ["national", "phone", "birth"]
KEYS = [["national"], ["phone", "birth"]]
#: A row's cells in these columns; None: it has none.
Row = tuple[str | None, str | None, str | None]


# ---- who finds whom


@dataclass(frozen=True)
class Case:
    """Rows of two parties, and the places of those that match: in the first one's table, in the second one's."""

    rows: tuple[list[Row], list[Row]]
    pairs: list[tuple[int, int]]
    keys: list[list[str]] = field(default_factory=lambda: KEYS)
    normalise: list[str] = field(default_factory=list)


CASES = {
    "by the second where one lacks the first": Case(
        ([("1", "p", "x"), (None, "q", "x"), ("3", "r", "x")], [("1", None, None), ("2", "q", "x"), (None, "r", "x")]),
        [(0, 0), (1, 1), (2, 2)],
    ),
    "all by the first": Case(
        ([("1", "p", "x"), ("2", "q", "x")], [("2", "q", "x"), ("1", "p", "x")]), [(0, 1), (1, 0)]
    ),
    "none by the first": Case(([(None, "p", "x")], [(None, "p", "x"), ("2", "q", "x")]), [(0, 0)]),
    "the first outweighs the second": Case(
        ([("1", "p", "x"), ("2", "q", "x")], [("1", "q", "x"), ("3", "p", "x"), ("2", None, None)]), [(0, 0), (1, 2)]
    ),
    "two rows of one value by the first": Case(
        ([("1", "p", "x"), ("1", "q", "x"), ("2", "r", "x")], [("1", "s", "x"), (None, "q", "x"), ("2", "t", "x")]),
        [(1, 1), (2, 2)],
    ),
    "two persons by the second": Case(
        ([(None, "p", "x"), ("1", "q", "x")], [("7", "p", "x"), ("8", "p", "x"), ("1", "z", "x")]), [(1, 2)]
    ),
    "one of two persons by the second is known by the first": Case(
        ([("1", "p", "x"), (None, "p", "x")], [("1", "p", "x"), ("2", "p", "y")]), [(0, 0)]
    ),
    "a part of the second is empty": Case(
        ([(None, "p", None), ("1", "q", "x")], [(None, "p", None), ("1", "q", "x")]), [(1, 1)]
    ),
    "one column's text is not the other's": Case(
        ([(None, "1", "2"), ("1", "q", "x")], [("2", "1", "x"), (None, "2", "1"), ("1", "q", "x")]), [(1, 2)]
    ),
    "keys that share a column": Case(
        ([("1", "p", "x"), (None, "q", "y"), ("3", None, "z")], [("1", "p", "x"), (None, "q", "y"), ("3", "r", "z")]),
        [(0, 0), (1, 1), (2, 2)],
        [["national", "phone"], ["phone", "birth"], ["national"]],
    ),
    "empty by the rules": Case(
        ([("none", "p-1", "x1"), ("1", "q2", "x2")], [("?", "p1", "x1"), ("1", "q3", "x2")]),
        [(0, 0), (1, 1)],
        normalise=["digits"],
    ),
}


def _table(rows: list[Row]) -> pa.Table:
    cells = [pa.array([row[place] for row in rows], pa.string()) for place in range(len(COLUMNS))]
    return pa.table(dict(zip(COLUMNS, cells, strict=True)))


def _two(case: Case, folder: Path, **more: Any) -> Federation:
    tables = {name: ([], {"train": _table(rows)}) for name, rows in zip(NAMES, case.rows, strict=False)}
    named: dict[str, Any] = {"keys": dict.fromkeys(NAMES, case.keys), "policies": ROWS} | more
    return Federation(folder, tables, normalise=dict.fromkeys(NAMES, case.normalise), **named)


def _rows_of(federation: Federation, party: str) -> set[int]:
    with (federation.state(party) / "previews" / "p.csv").open(newline="") as file:
        return {int(line["row"]) for line in csv.DictReader(file)}


@pytest.mark.parametrize("proven", [False, True])
@pytest.mark.parametrize("name", CASES)
async def test_who_finds_whom(name: str, proven: bool, tmp_path: Path) -> None:
    """Each party names the rows of the pairs that are listed, and says how many; also with proofs."""
    case = CASES[name]
    asks = {party: {**ROWS[party], "keys": {"alignment_proof": proven}} for party in NAMES}
    federation = _two(case, tmp_path, policies=asks)
    status = finished(await federation.preview(answer="records"))
    assert status.common.records == len(case.pairs)
    for place, party in enumerate(NAMES[:2]):
        assert _rows_of(federation, party) == {pair[place] for pair in case.pairs}


async def test_what_is_in_no_list_is_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    finished(await _two(CASES["two rows of one value by the first"], tmp_path).preview(answer="records"))
    said = [record.getMessage() for record in caplog.records if "key " in record.getMessage()]
    assert len(said) == 4
    assert sum("key 1 of 2: 1 records match, of 1 that no key" in each for each in said) == 1
    assert sum("0 lack a part of it, 2 have that of another record" in each for each in said) == 1
    assert sum("1 lack a part of it, 0 have that of another record" in each for each in said) == 1


async def test_each_list_counts_as_guesses(tmp_path: Path) -> None:
    """The first lists are short; the second one is longer than the other party raises."""
    rows: list[Row] = [(None, f"p{number}", "x") for number in range(5)]
    case = Case(([("1", "a", "x"), *rows], [("1", "a", "x"), *rows]), [])
    limit = {NAMES[1]: {**ROWS[NAMES[1]], "partners": {NAMES[0]: {"largest_list": 4}}}}
    status = await _two(case, tmp_path, policies=ROWS | limit).preview(answer="records")
    failed(status, f"{NAMES[1]} does not raise a list of {NAMES[0]} with more than 4 ids")


async def test_both_learn_by_which_key_and_nothing_leaves_twice(tmp_path: Path) -> None:
    """A list has the records that no key before has matched; each is of exponents of its own."""
    case = CASES["by the second where one lacks the first"]
    points: dict[tuple[str, int, int], list[bytes]] = {}

    def note(sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "blinded_ids":
            block = parcel.alignment.blinded_ids.points
            points[sender, parcel.round, parcel.stage] = [block[at : at + 32] for at in range(0, len(block), 32)]

    federation = _two(case, tmp_path)
    federation.tamper = note
    finished(await federation.preview(answer="records"))
    assert {(sender, key): len(sent) for (sender, key, stage), sent in points.items() if stage == 1} == {
        (NAMES[0], 0): 2,
        (NAMES[1], 0): 2,
        (NAMES[0], 1): 2,
        (NAMES[1], 1): 2,
    }
    every = [point for sent in points.values() for point in sent]
    assert len(set(every)) == len(every) - 3  # those that are common come back to both


# ---- models

#: Rows beside a world's records, of whom nobody has a match: two of one telephone at the label holder, two of one
#: national id at the next party.
BESIDE: dict[str, list[Row]] = {
    HOLDER: [("x", "s", "a"), ("y", "s", "a"), ("z", "t", "c")],
    B: [("w", "s", "a"), ("z", "t", "b"), ("z", None, "c")],
}


def _keyed(here: World, *, beside: bool) -> World:
    """The same world, whose ids are of two keys: each party lacks another third of the first; all have the second."""
    tables = {}
    for place, (party, (columns, content)) in enumerate(here.tables.items()):
        made = {}
        for name, table in content.items():
            numbers = [int(text[1:]) for text in table.column("id").to_pylist()]
            rows: list[Row] = [
                (None if number % 3 == place else f"N{number}", f"p{number // 2}", str(number % 2))
                for number in numbers
            ]
            cells = table.drop_columns(["id"])
            if beside:
                more = BESIDE.get(party, [])
                rows, cells = [*rows, *more], pa.concat_tables([cells, cells.slice(0, len(more))])
            ids = _table(rows)
            made[name] = pa.table(
                dict(zip([*COLUMNS, *cells.column_names], [*ids.columns, *cells.columns], strict=True))
            )
        tables[party] = columns, made
    return replace(here, tables=tables)


def _federation(here: World, folder: Path, **more: Any) -> Federation:
    return Federation(folder, here.tables, keys=dict.fromkeys(PARTIES, KEYS), **more)


PROVEN = {party: {"keys": {"alignment_proof": True}} for party in PARTIES}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", ["inner", "left", "eval table"])
async def test_the_model_is_that_of_equal_ids(way: str, tmp_path: Path) -> None:
    """Trees and scores of new records are the oracle's; a file of predictions has the columns of all keys."""
    here = lacking(world(dims=(2, 2, 1)), 0.4) if way == "left" else world(dims=(2, 3), fresh=30)
    keyed = _keyed(with_eval_table(here).here, beside=way != "left")
    federation = _federation(keyed, tmp_path, policies=PROVEN)
    more = {"left": {"join": "left"}, "eval table": {"eval_table": "eval"}}.get(way, {})
    finished(await federation.train(spec(BOOSTING, parties=len(here.blocks), alignment="psi", **more)))
    oracle = here.oracle(BOOSTING)
    assert_oracles_model(federation.states, oracle)
    predicted = finished(await federation.predict(predict_request(model="job", protocol="interactive", block=17)))
    table = pq.read_table(predicted.predictions)
    assert table.column_names[:3] == COLUMNS
    scores = np.array(oracle_predict(oracle, here.newcomers))[:, 0]
    found = {}
    for line in table.to_pylist():
        if line["score"] is None:
            assert tuple(line[name] for name in COLUMNS) in BESIDE[HOLDER]
            continue
        found[2 * int(line["phone"][1:]) + int(line["birth"]) - len(here.y)] = line["score"]
    assert [found[place] for place in range(len(scores))] == pytest.approx(list(scores), abs=1e-9)


@pytest.mark.second_tier
@pytest.mark.parametrize(("word", "nth"), [("pass_ids", 5), ("match_ids", 3), ("bin", 1)])
async def test_a_killed_job_goes_on_with_the_same_records(word: str, nth: int, tmp_path: Path) -> None:
    """Killed at the second key, and once all records are known."""
    here = world(dims=(2, 3))
    federation = _federation(_keyed(here, beside=True), tmp_path)
    federation.kill_at(B, lambda message: message.word == word and message.to == B, nth=nth, back=True)
    status = await federation.train(spec(BOOSTING, parties=2, alignment="psi"))
    finished(status if status.state == "finished" else await federation.resume())
    assert_oracles_model(federation.states, here.oracle(BOOSTING))


async def test_a_record_goes_by_all_its_id_columns(tmp_path: Path) -> None:
    """In a file of ids, in a request, in the log of decisions, and when it is forgotten; an empty one has its place."""
    here = world(dims=(1, 2), fresh=6)
    serves = {HOLDER: config(decision_days=9)}
    permits = {"feature-b": {"partners": {HOLDER: {"look_ups_per_day": 9}}}}
    federation = _federation(_keyed(here, beside=False), tmp_path, serve=serves, record="both", policies=permits)
    finished(await federation.train(spec(PARAMS, parties=2, alignment="psi")))
    lacks = next(number for number in range(len(here.y), len(here.y) + 6) if number % 3 == 0)
    ids = [f"0:{len(f'p{lacks // 2}')}:p{lacks // 2}1:{lacks % 2}", "0:0:0:", f"N{lacks}"]
    (tmp_path / HOLDER / "some.txt").write_text(f"{ids[0]}\n")
    predicted = finished(await federation.predict(predict_request(model="job", records_file="some.txt")))
    (line,) = pq.read_table(predicted.predictions).to_pylist()
    assert [line[name] for name in COLUMNS] == [None, f"p{lacks // 2}", str(lacks % 2)]
    looked_up = await federation.predict(predict_request("interactive", model="job", job="l", serve=True, look_up=True))
    failed(looked_up, "an id of 2 keys (of 1, 2 columns) finds a record by any of them, and look-ups are by one")
    await serve(federation)
    statuses = [each.status for each in (await ask(federation, *ids)).predictions]
    assert statuses == [serving_pb2.PREDICTED, serving_pb2.UNKNOWN_ID, serving_pb2.UNKNOWN_ID]
    await federation.close()
    outcome = forget(federation.configs[HOLDER], Ids.of(ids[:1]), dry=False, transcripts=True)
    assert sum(had for _, had, _ in outcome.files.values()) >= 2
    assert pq.read_table(predicted.predictions).num_rows == 0


# ---- refusals

SOME: list[Row] = [("1", "p", "x"), ("2", "q", "x")]
TWO = Case((SOME, SOME), [])


@dataclass(frozen=True)
class Refusal:
    """What is refused: rows of the first party; the second one's `keys` and rules; what is asked, and what it says."""

    said: list[str]
    rows: list[Row] = field(default_factory=lambda: SOME)
    keys: list[list[str]] = field(default_factory=lambda: KEYS)
    normalise: list[str] = field(default_factory=list)
    parties: int = 2
    answer: str = "records"
    alignment: str = "psi"


REFUSED = {
    "two rows of one id": Refusal(["the id is there already"], [*SOME, SOME[0]]),
    "no key": Refusal(["columns 'national', 'phone', 'birth': the id is missing"], [*SOME, (None, " ", None)]),
    "no key by the rules": Refusal(
        ["columns 'national', 'phone', 'birth'", "the id is missing"],
        [("1", "1", "1"), ("-", "-", "-")],
        normalise=["digits"],
    ),
    "a column that is absent": Refusal(["tax"], keys=[["tax"], ["phone", "birth"]]),
    "other keys": Refusal(["an id of 2 keys (of 1, 2 columns)", "an id of 2 keys (of 2, 1 columns)"], keys=KEYS[::-1]),
    "one key": Refusal(["an id of 2 keys (of 1, 2 columns)", "an id of one key"], keys=KEYS[:1]),
    "other rules": Refusal(["normalise = []", "normalise = ['casefold']"], normalise=["casefold"]),
    "a count": Refusal(["has no count", "--records"], answer="count"),
    "three parties": Refusal(["between two parties", "join = 'left'"], parties=3),
    "sorted-ids": Refusal(["is for alignment = 'psi'"], alignment="sorted-ids"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_refusals(name: str, tmp_path: Path) -> None:
    """By name, with status 2, before an identifier leaves."""
    case = REFUSED[name]
    rows = (case.rows, SOME, SOME)
    tables = {party: ([], {"train": _table(own)}) for party, own in zip(NAMES, rows, strict=False)}
    tables = dict(list(tables.items())[: case.parties])
    keys = {NAMES[0]: KEYS, NAMES[1]: case.keys, NAMES[2]: KEYS}
    rules = dict.fromkeys(NAMES[:1] if case.normalise == ["digits"] else NAMES[1:2], case.normalise)
    federation = Federation(tmp_path, tables, keys=keys, normalise=rules, policies=ROWS)
    sent: list[str] = []
    federation.hook = lambda message: sent.append(message.word)
    if case.alignment == "psi":
        status = await federation.preview(answer=case.answer)
    else:
        labelled = (
            tables[NAMES[0]][1]["train"].append_column("y", pa.array([0, 1])).append_column("c", pa.array([0.5, 1]))
        )
        federation = Federation(tmp_path / "labelled", {**tables, NAMES[0]: (["c"], {"train": labelled})}, keys=keys)
        asked = job(2)
        asked.alignment = case.alignment
        status = await federation.train(asked)
    for part in case.said:
        failed(status, part, bad_input=True)
    assert not set(sent) & {"blinded_ids", "sum_of_list", "record_digest"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"column": "id", "match": "fuzzy"}, "similar ones for one"),
        (7, "is a column, a list of columns"),
        ([], "is a column, a list of columns"),
        ([[]], "is a column, a list of columns"),
        ([["a"], "b"], "is a column, a list of columns"),
        ([[f"c{number}"] for number in range(MOST_KEYS + 1)], f"at most {MOST_KEYS}"),
        ([["a", "a"], ["b"]], "id names 'a' twice"),
        ([["a", "b"], ["b", "a"]], "id has a key of the same columns twice"),
        ([["a"], ["v"]], "column 'v' is the id or the label or the weight"),
    ],
)
def test_other_forms_of_an_id(value: Any, said: str) -> None:
    """Ids are equal or not: what a key may be is said, and that nothing similar is taken for one."""
    with pytest.raises(ValidationError, match=said):
        TableConfig(path=Path("t.csv"), id=value, columns=["v"])
