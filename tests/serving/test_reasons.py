"""Reasons: the columns that moved a record's score towards the refused class, as the joined table has them.

- Records with one column at its reference value are scored by the protocol's own steps, for each column of a split.
- Names go where a policy sends REASON; each further record counts in `queries_per_record`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.boosting.categories import categorical_world
from tests.library.tables.given import parquet_file, read
from tests.oracle import OracleModel, OracleSplit, oracle_predict
from tests.serving.served import LABEL_HOLDER, WAYS, B, C, ask, config, phase, serve
from tests.simulator import Federation, failed, finished
from tests.worlds import World, lacking, manifest, spec, world
from treetap.errors import BadInput, ConfigError
from treetap.models.durable import KEY, document
from treetap.models.store import MANIFEST, REFERENCES, manifest_seed, read_job
from treetap.party.policy_tables import ColumnPolicy
from treetap.party.prediction.query_counts import QueryCounts
from treetap.party.serving.decisions import decisions_of
from treetap.protocols.prediction import predict_request
from treetap.tables import references
from treetap.tables.binned import JobRecords
from treetap.tables.record_ids import Ids
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.v2 import serving_pb2

PARAMS = BoostingParams(n_estimators=3, max_depth=3, max_bin=6, min_child_weight=0.1)
HERE = world(40, (2, 2, 1), missing=0.1, levels=3, seed=3)
#: (party, name of its column).
Column = tuple[str, str]


def columns_of(here: World, oracle: OracleModel) -> dict[Column, int]:
    """The columns that trees split, the label holder's first and by name → the place among the party's columns."""
    splits = [node for tree in oracle for node in tree.nodes.values() if isinstance(node, OracleSplit)]
    used = {(split.owner, here.tables[split.owner][0][split.feature]): split.feature for split in splits}
    return {
        (party, name): used[party, name] for party in here.tables for _, name in sorted(used) if (party, name) in used
    }


def reference(values: Any, *, of_categories: bool) -> float:
    """The median, or the most frequent one."""
    held = values[~np.isnan(values)]
    different, counts = np.unique(held, return_counts=True)
    return float(different[counts.argmax()]) if of_categories else float(np.median(held))


def towards(scores: Any, refused: int) -> float:
    """How far scores are on the side of a class, of several the lead over the next."""
    if len(scores) == 1:
        return -float(scores[0]) if refused == 0 else float(scores[0])
    return float(scores[refused] - max(score for place, score in enumerate(scores) if place != refused))


def reasons_of(
    here: World, oracle: OracleModel, refused: int = 1, given: Mapping[Column, float] = MappingProxyType({})
) -> list[list[Column]]:
    """All reasons of each new record, by the oracle on the joined table; `given`: reference values of policies."""
    columns = columns_of(here, oracle)

    def sides(blocks: list[Any]) -> list[float]:
        named = list(zip(here.tables, blocks, strict=True))
        return [towards(scores, refused) for scores in oracle_predict(oracle, named)]

    scores = sides(here.new)
    less: dict[Column, list[float]] = {}
    for (party, name), place in columns.items():
        m, blocks = list(here.tables).index(party), [block.copy() for block in here.new]
        of_categories = here.categories.get((party, place), 0) > 0
        own = reference(here.blocks[m][:, place], of_categories=of_categories)
        blocks[m][:, place] = given.get((party, name), own)
        less[party, name] = [score - other for score, other in zip(scores, sides(blocks), strict=True)]
    found = []
    for k in range(len(scores)):
        ordered = sorted(columns, key=lambda column: -round(less[column][k], 12))
        found.append([column for column in ordered if round(less[column][k], 12) > 0])
    return found


@asynccontextmanager
async def serving(
    folder: Path,
    here: World = HERE,
    params: TreeParams = PARAMS,
    way: str = "interactive",
    policies: Any = None,
    encode: Any = None,
    job: dict[str, Any] | None = None,
    **changes: Any,
) -> AsyncIterator[Federation]:
    """A federation that serves a model with reasons, whose parties tell the names of their columns."""
    told = {party: {"emits": {"REASON": ["parties"]}} for party in (B, C)} if policies is None else policies
    served, more = {LABEL_HOLDER: config(**changes)}, {"encode": encode} if encode else {}
    federation = Federation(folder, here.tables, policies=told, serve=served, **more)
    finished(await federation.train(spec(params, **(job or {"obfuscation": "standard"}))))
    await serve(federation, **WAYS[way], reasons=True)
    yield federation
    await federation.close()


def said(entry: serving_pb2.RecordPrediction) -> list[Column]:
    return [(reason.party, reason.column) for reason in entry.reasons]


def ids_of(here: World) -> list[str]:
    """The ids of the new records, in order."""
    return [f"r{len(here.y) + place:05d}" for place in range(len(here.new[0]))]


@dataclass(frozen=True)
class Case:
    """What is served: a model of a world, with `refused` if not the last class."""

    way: str = "interactive"
    here: World = HERE
    params: TreeParams = PARAMS
    refused: str = ""
    most: int = 16
    more: dict[str, Any] = field(default_factory=dict)


THREE = replace(PARAMS, objective="multi:softprob", n_estimators=2, multi_strategy="one_output_per_tree")
NUMBERS = replace(PARAMS, objective="reg:squarederror")
CASES = {
    **{way: Case(way) for way in WAYS},
    "four of them": Case(most=4),
    "the other class": Case(refused="0"),
    "three classes": Case(
        here=world(40, (2, 2, 1), objective="multi:softprob", classes=3, seed=1), params=THREE, refused="1"
    ),
    "a regression": Case("eini", here=world(40, (2, 2, 1), objective="reg:squarederror", seed=2), params=NUMBERS),
    "a forest": Case(params=ForestParams(n_estimators=3, max_depth=3, max_bin=6)),
    "categories": Case(here=categorical_world(missing=0.1), more={"encode": "categorical"}),
}


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("name", CASES)
async def test_reasons_are_those_of_the_joined_table(name: str, tmp_path: Path) -> None:
    """Which columns, and in which order; scores are as without them."""
    case = CASES[name]
    oracle = case.here.oracle(case.params)
    refused = int(case.refused or 1)
    expected = [reasons[: case.most] for reasons in reasons_of(case.here, oracle, refused)]
    assert max(map(len, expected)) > 1
    ids = ids_of(case.here)
    async with serving(tmp_path, case.here, case.params, case.way, refused=case.refused, **case.more) as federation:
        answer, plain = await ask(federation, *ids, reasons=case.most), await ask(federation, *ids)
        assert [said(entry) for entry in answer.predictions] == expected
        assert [list(entry.scores) for entry in answer.predictions] == [
            list(entry.scores) for entry in plain.predictions
        ]
        assert not any(entry.reasons or entry.unreasoned for entry in plain.predictions)


def either() -> World:
    """y = b0 or c0, both 0 in most records; leaves of ones are alike to the last bit, as their records are 2^k."""
    b = np.repeat([0.0, 0.0, 1.0, 1.0], [16, 8, 4, 4])
    c = np.repeat([0.0, 1.0, 0.0, 1.0], [16, 8, 4, 4])
    y, new = ((b + c) > 0).astype(np.int64), (np.array([1.0, 1.0, 0.0, 0.0]), np.array([1.0, 0.0, 1.0, 0.0]))
    columns: list[tuple[str, list[str], Any, Any]] = [
        (LABEL_HOLDER, ["a0"], np.tile([0.0, 1.0], 16), np.zeros(4)), (B, ["b0"], b, new[0]), (C, ["c0"], c, new[1])
    ]  # fmt: skip
    tables: Any = {}
    for party, names, train, fresh in columns:
        ids = [f"r{place:05d}" for place in range(36)]
        content = {"id": ids[:32], names[0]: train} | ({"y": y} if party == LABEL_HOLDER else {})
        tables[party] = names, {"train": pa.table(content), "predict": pa.table({"id": ids[32:], names[0]: fresh})}
    blocks = [values.reshape(-1, 1) for _, _, values, _ in columns]
    return World(tables, blocks, y, [values.reshape(-1, 1) for *_, values in columns], 2)


@pytest.mark.parametrize("way", ["interactive", pytest.param("eini", marks=pytest.mark.second_tier)])
async def test_fewer_where_no_column_alone_changes_the_score(way: str, tmp_path: Path) -> None:
    """Of a model that is an OR of two columns a record with both has no reason, with one of them that one."""
    here, params = either(), BoostingParams(n_estimators=1, max_depth=2, reg_lambda=0.0, min_child_weight=0.1)
    async with serving(tmp_path, here, params, way) as federation:
        both, one, other, none = (await ask(federation, *ids_of(here), reasons=4)).predictions
        assert both.scores == one.scores == other.scores != none.scores
        assert [said(entry) for entry in (both, one, other, none)] == [[], [(B, "b0")], [(C, "c0")], []]


async def test_a_policy_may_give_the_value_that_is_compared(tmp_path: Path) -> None:
    """Of some columns; a column of other models is of no account, and a value that is none of its column is refused."""
    oracle, given = HERE.oracle(PARAMS), {(B, "b0"): -5.0, (B, "b1"): 7.0}
    assert reasons_of(HERE, oracle) != (expected := reasons_of(HERE, oracle, given=given))
    told = {party: {"emits": {"REASON": ["parties"]}} for party in (B, C)}
    values = {"references": {"b0": -5, "b1": 7.0, "of another table": "x"}}
    async with serving(tmp_path, policies=told | {B: {**told[B], "columns": values}}) as federation:
        answer = await ask(federation, *ids_of(HERE), reasons=16)
        assert [said(entry) for entry in answer.predictions] == expected
        policy = federation.policy(B).model_copy(update={"columns": ColumnPolicy(references={"b0": "high"})})
        federation.node(B).go_by(federation.configs[B].under(policy))
        await federation.jobs.cancel("s")
        federation.jobs.submit(predict_request("interactive", model="job", job="w", serve=True, reasons=True))
        failed(
            await phase(federation, "w", "serve"), "references under [columns] of the policy: column 'b0' holds a text"
        )


async def test_names_go_where_the_policy_sends_them(tmp_path: Path) -> None:
    """Without REASON a partner's columns have numbers; those of the label holder have names. The log has both."""
    oracle = HERE.oracle(PARAMS)
    columns = list(columns_of(HERE, oracle))
    number = {column: 1 + [each for each in columns if each[0] == column[0]].index(column) for column in columns}
    policies = {C: {"emits": {"REASON": [LABEL_HOLDER]}}}
    async with serving(tmp_path, policies=policies, decision_days=9) as federation:
        answer = await ask(federation, *ids_of(HERE), reasons=16)
        expected = [
            [(party, number[party, name], "" if party == B else name) for party, name in reasons]
            for reasons in reasons_of(HERE, oracle)
        ]
        assert {B, C} < {party for reasons in expected for party, *_ in reasons}
        assert [[(it.party, it.number, it.column) for it in entry.reasons] for entry in answer.predictions] == expected
        assert not [message for message in federation.log if message.sender == B and b"b0" in str(message).encode()]
        lines = list(decisions_of(federation.state(LABEL_HOLDER)))
        assert [line["reasons"] for line in lines] == [
            [f"{party}:{name or f'#{place}'}" for party, place, name in reasons] for reasons in expected
        ]


@pytest.mark.parametrize("way", ["interactive", pytest.param("eini", marks=pytest.mark.second_tier)])
async def test_each_further_record_counts(way: str, tmp_path: Path) -> None:
    """Of two queries the second is of the first further record that reaches the partner; reasons of columns of which
    others would be are left out by name, and then it answers no more.
    """
    policies = {C: {"partners": {LABEL_HOLDER: {"queries_per_record": 2}}}}
    ids, whole = ids_of(HERE), reasons_of(HERE, HERE.oracle(PARAMS))
    async with serving(tmp_path, way=way, policies=policies) as federation:
        answer = await ask(federation, *ids, reasons=16)
        assert QueryCounts(federation.states[C], LABEL_HOLDER).most() == 2
        left_out = [{*entry.unreasoned} for entry in answer.predictions]
        assert all(left_out) if way == "eini" else any(left_out)
        for entry, expected, parties in zip(answer.predictions, whole, left_out, strict=True):
            assert entry.status == serving_pb2.PREDICTED
            assert [it.party for it in entry.reasons] == [party for party, _ in expected if party not in parties]
        again = await ask(federation, *ids, reasons=16)
        for entry, parties in zip(again.predictions, left_out, strict=True):
            spent = entry.status == serving_pb2.QUERIES_SPENT
            assert (spent, entry.party) == ((True, C) if parties else (False, ""))
            assert not (spent and entry.reasons)


async def test_no_reason_is_of_a_party_that_lacks_the_record(tmp_path: Path) -> None:
    """Of a join from the left: it is named, and reasons of the others are the joined table's."""
    here = lacking(world(60, (2, 2, 1), missing=0.1, levels=3, seed=3), 0.4)
    oracle = here.oracle(PARAMS)
    known = {party: {*table["predict"].column("id").to_pylist()} for party, (_, table) in here.tables.items()}
    ids = ids_of(here)
    assert 0 < len(known[B]) < len(ids)
    job = {"alignment": "psi", "join": "left", "obfuscation": "standard"}
    async with serving(tmp_path, here, job=job) as federation:
        answer = await ask(federation, *ids, reasons=16)
        for value, entry, expected in zip(ids, answer.predictions, reasons_of(here, oracle), strict=True):
            lack = [party for party in (B, C) if value not in known[party]]
            assert list(entry.unreasoned) == lack
            assert said(entry) == [column for column in expected if column[0] not in lack]


@pytest.mark.parametrize(
    ("changes", "asked", "fault"),
    [
        ({}, {"reasons": 17}, r"reasons = 17 of 1 ids: model job gives at most 16"),
        ({"queue": 8, "most_ids": 8}, {"reasons": 1}, r"gives at most 16, of 1 ids in a request"),
        ({"queue": 3, "most_ids": 3}, {"reasons": 1}, r"of 0 ids in a request"),
    ],
)
async def test_requests_that_cannot_be(changes: Any, asked: Any, fault: str, tmp_path: Path) -> None:
    """More reasons than there may be, or more records in all ways than the queue takes."""
    async with serving(tmp_path, **changes) as federation:
        ids = ids_of(HERE)[: 2 if "queue" in changes else 1]
        with pytest.raises(BadInput, match=fault):
            await ask(federation, *ids, **asked)


@dataclass(frozen=True)
class Refused:
    """Something without which no model is served with reasons."""

    fault: str
    asked: dict[str, Any] = field(default_factory=dict)
    served: dict[str, Any] = field(default_factory=dict)
    policies: dict[str, Any] = field(default_factory=dict)
    strip: bool = False


REFUSED = {
    "no such class": Refused("serve.refused = 'yes'", served={"refused": "yes"}),
    "bits": Refused("one column at its reference value", policies={B: {"columns": {"min_candidate_bits": 1.0}}}),
    "earlier models": Refused("keeps no reference values of its columns", strip=True),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_not_served_with_reasons(name: str, tmp_path: Path) -> None:
    """A class that the model lacks, a bound on what scores tell, a model without reference values."""
    case = REFUSED[name]
    served = {LABEL_HOLDER: config(**case.served)}
    federation = Federation(tmp_path, HERE.tables, serve=served, policies=case.policies)
    finished(await federation.train(spec(PARAMS, obfuscation="standard")))
    if case.strip:
        folder = federation.state(B) / "models" / "job"
        stripped = {key: value for key, value in manifest(federation.state(B)).items() if key not in (REFERENCES, KEY)}
        seed = manifest_seed(str(read_job(folder)["submission"]))
        (folder / MANIFEST).write_bytes(document(stripped, seed, indented=True))
    status = await federation.predict(predict_request(model="job", serve=True, reasons=True))
    failed(status, case.fault)


def test_reasons_are_a_served_models(tmp_path: Path) -> None:
    """A prediction of a table has none."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        finished(await federation.train(spec(PARAMS, obfuscation="standard")))
        with pytest.raises(ConfigError, match="reasons: are given to clients of a served model"):
            await federation.predict(predict_request(model="job", reasons=True))

    from tests.simulator import run

    run(main())


CELLS = {
    "id": [f"r{place}" for place in range(8)],
    "number": [1.0, None, 3.0, 9.0, 2.0, None, 1.0, 4.0],
    "text": ["b", "a", "a", None, "c", "b", "b", "c"],
    "empty": pa.array([None] * 8, pa.float64()),
}


@pytest.mark.parametrize("at_once", [1, 10**9])
@pytest.mark.parametrize("encode", ["ordinal", "one-hot"])
def test_reference_values(encode: str, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Median and most frequent category of the training's records alone, however many features are read at once."""
    monkeypatch.setattr(references, "half_of_memory", lambda: at_once)
    table = read(parquet_file(tmp_path, CELLS), "number", "text", "empty", encode={"text": encode})
    found = references.reference_values(JobRecords(table, 7))
    assert found == [2.0, *([1.0] if encode == "ordinal" else [0.0, 1.0, 0.0]), None]


def test_a_record_that_comes_several_times_counts_as_often(tmp_path: Path) -> None:
    """In one block: as often as the limit allows, the others of it are spent."""
    counts = QueryCounts(tmp_path, "bank")
    asked = Ids.of(["a", "b"]).take(np.array([0, 0, 1, 0, 1]))
    assert counts.enter_permitted(asked, 2).tolist() == [False, False, False, True, False]
    assert QueryCounts(tmp_path, "bank").most() == 2
    assert counts.enter_permitted(asked, 3).tolist() == [False, True, False, True, True]
