"""Scoring who is new: own fields, look-ups at feature parties, and what is refused by name.

- A record that the label holder's table lacks is scored as if it were there, also where feature parties lack it and the
  model is of a join from the left.
- Feature parties are asked for places of their lists only after as many look-ups, which their policies count.
- Whatever is wrong with a record is said for that record alone; a hostile element ends the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.growth.test_left_join import BOOSTING
from tests.oracle import oracle_predict
from tests.replay import HERE, PARAMS
from tests.serving.served import EXACT, IDS, LABEL_HOLDER, B, C, ask, config, phase, serve, without
from tests.serving.test_reasons import PARAMS as REASONED
from tests.serving.test_reasons import ids_of, reasons_of, said
from tests.simulator import Federation, failed, finished
from tests.step_tables import lines_of
from tests.worlds import World, lacking, spec, world
from treetap.errors import BadInput, ConfigError, Malformed, NotServed, Silent, TreetapError
from treetap.party.eini import feature_party as eini_feature_party
from treetap.party.eini import label_holder as eini_label_holder
from treetap.party.interactive import feature_party as interactive_feature_party
from treetap.party.interactive import label_holder as interactive_label_holder
from treetap.party.prediction.applicants import encode
from treetap.party.prediction.look_up import RaisedList
from treetap.party.prediction.steps import NAMES
from treetap.party.runtime.ledger import Kind, ledger_of
from treetap.party.runtime.step_order import table_of
from treetap.protocols.prediction import predict_request
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, serving_pb2

ROLES: dict[str, tuple[type, type]] = {
    "interactive": (interactive_feature_party.FeatureParty, interactive_label_holder.LabelHolder),
    "eini": (eini_feature_party.FeatureParty, eini_label_holder.LabelHolder),
}
#: Most error of a score, where it is no rounding: docs/protocol-lattice.md.
ERRORS = {"eini-lattice": 5e-5}
ENCRYPTED = [pytest.param("eini", marks=pytest.mark.second_tier), "eini-lattice"]
#: Records that the label holder's table lacks.
NEW = IDS[3:]
#: What is added to the policies of feature parties.
PERMITTED = {party: {"partners": {LABEL_HOLDER: {"look_ups_per_day": 1000}}} for party in (B, C)}


def field(column: str, value: Any) -> serving_pb2.OwnField:
    """A field with a value of this type."""
    kinds = {bool: "truth", int: "whole", float: "number", str: "text"}
    return serving_pb2.OwnField(column=column, **({} if value is None else {kinds[type(value)]: value}))


def record(name: str, here: World = HERE, **changed: Any) -> serving_pb2.NewRecord:
    """A record with the label holder's fields of a new record of the world, some of them changed."""
    columns, tables = here.tables[LABEL_HOLDER]
    (cells,) = (row for row in tables["predict"].to_pylist() if row["id"] == name)
    cells = {column: cells[column] for column in columns} | changed
    return serving_pb2.NewRecord(id=name, fields=[field(column, value) for column, value in cells.items()])


@asynccontextmanager
async def serving(
    folder: Path, tables: Any = None, policies: Any = None, job: Any = None, asked: Any = None, **changes: Any
) -> AsyncIterator[Federation]:
    """A federation that serves with look-ups, whose label holder lacks some records."""
    tables = without(HERE.tables, LABEL_HOLDER, NEW) if tables is None else tables
    policies = PERMITTED if policies is None else policies
    federation = Federation(folder, tables, serve={LABEL_HOLDER: config(**changes)}, policies=policies)
    finished(await federation.train(job or spec(PARAMS, alignment="psi", obfuscation="standard")))
    await serve(federation, **{"protocol": "interactive", "look_up": True} | (asked or {}))
    yield federation
    await federation.close()


def asked_of(federation: Federation, party: str) -> float:
    """Look-ups that a party has charged."""
    return sum(charge.amount for charge in ledger_of(federation.state(party)).charges(Kind.LOOK_UPS))


@pytest.mark.parametrize("protocol", ["interactive", *ENCRYPTED])
async def test_a_new_record_is_scored_as_if_it_were_in_the_table(protocol: str, tmp_path: Path) -> None:
    """Beside one of the table; one that a party lacks says so, and is named to nobody; others are looked up again."""
    tables = without(without(HERE.tables, LABEL_HOLDER, NEW), C, NEW[2:])
    async with serving(tmp_path, tables, asked={"protocol": protocol}) as federation:
        answer = await ask(federation, IDS[0], records=[record(name) for name in NEW])
        assert [each.id for each in answer.predictions] == [IDS[0], *NEW]
        assert [each.scores[0] for each in answer.predictions[:3]] == pytest.approx(
            [EXACT[0], *EXACT[3:5]], abs=ERRORS.get(protocol, 1e-9)
        )
        assert (answer.predictions[3].status, answer.predictions[3].party) == (serving_pb2.NOT_COMMON, C)
        for name, status in ((NEW[2], serving_pb2.NOT_COMMON), (NEW[1], serving_pb2.PREDICTED)):
            (found,) = (await ask(federation, records=[record(name)])).predictions
            assert found.status == status
        assert found.scores[0] == pytest.approx(EXACT[4], abs=ERRORS.get(protocol, 1e-9))
        assert (await ask(federation, *IDS[:3])).predictions[2].scores[0] == pytest.approx(
            EXACT[2], abs=ERRORS.get(protocol, 1e-9)
        )
        assert {party: asked_of(federation, party) for party in (B, C)} == {B: 10, C: 10}  # by hundredths


@pytest.mark.second_tier
@pytest.mark.parametrize("protocol", ROLES)
async def test_every_line_of_look_ups_is_taken(protocol: str, tmp_path: Path) -> None:
    """Of blocks with new records that are scored, before and after others, and of those that are not."""
    tables = without(without(HERE.tables, LABEL_HOLDER, NEW), C, NEW[2:])
    pairs, roles = set[tuple[str, str]](), ROLES[protocol]
    async with serving(tmp_path, tables, asked={"protocol": protocol}) as federation:
        for name in (NEW[2], NEW[0], NEW[0], NEW[1]):
            await ask(federation, records=[record(name)])
        for party in (LABEL_HOLDER, B, C):
            begun = (it for kind, to, it in federation.conducted if (kind, to) == ("begin", party) and it.job == "s")
            mine = table_of(roles[party == LABEL_HOLDER]).keys() - {"open_model"}
            steps = [name for name in map(name_of, begun) if name in mine]
            pairs |= set(zip([NAMES, *steps], steps, strict=False))
    lines = [(line.done, line.step) for kind in roles for line in lines_of(table_of(kind))]
    wanted = {line for line in lines if {"look_up", "answer_look_ups"} & {*line}}
    assert wanted <= pairs


@pytest.mark.second_tier
@pytest.mark.parametrize("protocol", ["interactive", "eini", "eini-lattice"])
async def test_a_record_that_parties_lack_is_scored_by_a_join_from_the_left(protocol: str, tmp_path: Path) -> None:
    """Absent cells go the missing way; so does a record that is in nobody's table."""
    here = lacking(world(60, (2, 2, 1), fresh=8), 0.4)
    ids = [f"r{60 + i:05d}" for i in range(8)]
    policies = {party: PERMITTED[party] | {"columns": {"left_join": True}} for party in PERMITTED}
    job = spec(BOOSTING, alignment="psi", join="left", obfuscation="standard")
    tables, asked = without(here.tables, LABEL_HOLDER, ids[5:]), {"protocol": protocol}
    async with serving(tmp_path, tables, policies, job, asked) as federation:
        exact = np.array(oracle_predict(here.oracle(BOOSTING), here.newcomers))[:, 0]
        answer = await ask(federation, *ids[:5], records=[record(name, here) for name in ids[5:]])
        assert [each.scores[0] for each in answer.predictions] == pytest.approx(exact, abs=ERRORS.get(protocol, 1e-9))
        stranger = serving_pb2.NewRecord(id="nobody", fields=record(ids[5], here).fields)
        own = [here.new[0][5:6], *(np.full_like(block[5:6], np.nan) for block in here.new[1:])]
        alone = oracle_predict(here.oracle(BOOSTING), replace(here, new=own).newcomers)
        (found,) = (await ask(federation, records=[stranger])).predictions
        assert found.scores[0] == pytest.approx(alone[0][0], abs=ERRORS.get(protocol, 1e-9))


@pytest.mark.parametrize(
    ("join", "protocol"),
    [
        ("inner", "interactive"),
        *(pytest.param("left", name, marks=pytest.mark.second_tier) for name in ("interactive", "eini-lattice")),
    ],
)
async def test_new_records_have_reasons(join: str, protocol: str, tmp_path: Path) -> None:
    """As those of the table; none of parties that lack one. It is looked up once, in however many blocks it is."""
    here = world(40, (2, 2, 1), missing=0.0, levels=3, seed=3, fresh=6)
    here = lacking(here, 0.4) if join == "left" else here
    ids, per_day = ids_of(here), {"partners": {LABEL_HOLDER: {"look_ups_per_day": 100}}}
    policies = {party: per_day | {"emits": {"REASON": ["parties"]}, "columns": {"left_join": True}} for party in (B, C)}
    job, tables = spec(REASONED, alignment="psi", join=join), without(here.tables, LABEL_HOLDER, ids[2:])
    held = {party: here.tables[party][1]["predict"].column("id").to_pylist() for party in (B, C)}
    lacks = [[party for party, own in held.items() if name not in own] for name in ids]
    asked = {"protocol": protocol, "reasons": True, "block": 4}
    async with serving(tmp_path, tables, policies, job, asked) as federation:
        answer = await ask(federation, *ids[:2], records=[record(name, here) for name in ids[2:]], reasons=16)
        assert [list(entry.unreasoned) for entry in answer.predictions] == lacks
        assert [said(entry) for entry in answer.predictions] == [
            [(party, name) for party, name in reasons if party not in lacks[k]]
            for k, reasons in enumerate(reasons_of(here, here.oracle(REASONED)))
        ]
        assert {party: asked_of(federation, party) for party in (B, C)} == {B: 4, C: 4}


MANIFEST: dict[str, Any] = {
    "source_columns": ["age", "kind", "born"],
    "columns": ["age", "kind=a", "kind=b", "born"],
    "categories": {
        "kind": {"encode": "one-hot", "values": ["a", "b"], "features": ["kind=a", "kind=b"], "numeric": False},
        "born": {"encode": "days", "values": [], "features": ["born"], "utc": False},
    },
    "missing": -1.0,
}
GOOD = {"age": 41, "kind": "b", "born": "1970-01-03"}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({}, [41.0, 0.0, 1.0, 2.0]),
        ({"age": 41.5, "kind": None}, [41.5, np.nan, np.nan, 2.0]),
        ({"age": -1, "born": None}, [np.nan, 0.0, 1.0, np.nan]),
        ({"age": True}, [1.0, 0.0, 1.0, 2.0]),
        ({"kind": "c"}, "column 'kind' has a category that the training had not"),
        ({"kind": 3}, "column 'kind' holds int64, and text when it was trained on"),
        ({"age": "41"}, "column 'age' holds a text, and a number is wanted"),
        ({"age": float("inf")}, "column 'age': the cell is infinite"),
        ({"born": "yesterday"}, "column 'born'"),
        ({"agee": 1}, "column 'agee' is none of the model's; did you mean 'age'?"),
    ],
)
def test_fields_are_those_of_the_model(given: dict[str, Any], made: Any) -> None:
    """Nothing is taken for missing that is not said to be."""
    one = serving_pb2.NewRecord(id="x", fields=[field(*cell) for cell in (GOOD | given).items()])
    good = serving_pb2.NewRecord(id="y", fields=[field(*cell) for cell in GOOD.items()])
    fewer = serving_pb2.NewRecord(id="z", fields=good.fields[1:])
    twice = serving_pb2.NewRecord(id="z", fields=[*good.fields, good.fields[0]])
    found = encode(MANIFEST, one)
    if isinstance(made, str):
        assert made in str(found)
    else:
        np.testing.assert_array_equal(found, made)
    assert "column 'age' is missing" in str(encode(MANIFEST, fewer))
    assert "a column is there twice" in str(encode(MANIFEST, twice))


async def test_what_is_wrong_is_said_for_a_record_alone(tmp_path: Path) -> None:
    """Ids and fields, a request too large, limits of a day and of a record; all others are answered."""
    policies = {B: {"partners": {LABEL_HOLDER: {"look_ups_per_day": 5}}}, C: dict(PERMITTED[C])}
    policies[C] = {"partners": {LABEL_HOLDER: {"look_ups_per_day": 1000, "queries_per_record": 2}}}
    async with serving(tmp_path, None, policies, decision_days=9) as federation:
        bad = serving_pb2.NewRecord(id=NEW[1])
        asked = [record(IDS[0]), record(NEW[0]), record(NEW[0]), serving_pb2.NewRecord(fields=asked_fields()), bad]
        answer = (await ask(federation, "nobody", records=asked)).predictions
        assert [each.status for each in answer] == [
            *(serving_pb2.UNKNOWN_ID, serving_pb2.INVALID, serving_pb2.PREDICTED, serving_pb2.INVALID),
            *(serving_pb2.INVALID, serving_pb2.INVALID),
        ]
        said = ("the table has it", "asked about already", "empty", "missing")
        for each, words in zip([answer[1], *answer[3:]], said, strict=True):
            assert words in each.fault
        assert answer[2].scores[0] == pytest.approx(EXACT[3], abs=1e-9)
        # own fields may vary from one request to the next: each counts as a query of that record
        column = asked_fields()[0].column
        (varied,) = (await ask(federation, records=[record(NEW[0], HERE, **{column: 1e9})])).predictions
        assert varied.status == serving_pb2.PREDICTED
        (third,) = (await ask(federation, records=[record(NEW[0])])).predictions
        assert (third.status, third.party) == (serving_pb2.QUERIES_SPENT, C)
        late = (await ask(federation, records=[record(name) for name in NEW])).predictions
        assert {(each.status, each.party) for each in late} == {(serving_pb2.QUERIES_SPENT, B)}
        with pytest.raises(BadInput, match="most_ids"):
            await ask(federation, records=[record(NEW[0])] * 10_000)
        assert (await ask(federation, IDS[1])).predictions[0].scores[0] == pytest.approx(EXACT[1], abs=1e-9)


def asked_fields() -> Any:
    """The fields of a new record."""
    return record(NEW[0]).fields


def _low_order(parcel: exchange_pb2.PeerMessage) -> None:
    """A point of order 2 in the place of the first one."""
    body = getattr(parcel.prediction, name_of(parcel))
    body.points = bytes(32) + body.points[32:]


def _longer(parcel: exchange_pb2.PeerMessage) -> None:
    body = getattr(parcel.prediction, name_of(parcel))
    body.points += body.points[:32]


def _another_place(parcel: exchange_pb2.PeerMessage) -> None:
    """A point that no list has, in a list: the place that follows was not looked up."""
    parcel.prediction.looked_up.points = parcel.prediction.looked_up.points[:0]


@pytest.mark.parametrize(
    ("content", "change", "says"),
    [
        ("listed_ids", _low_order, "not a point of the group"),
        ("listed_ids", _longer, "lists 4 ids, and its table has 3 more"),
        ("look_ups", _low_order, "not a point of the group"),
        ("looked_up", _low_order, "not a point of the group"),
        ("looked_up", _longer, "64 bytes answer look-ups of 32"),
        ("looked_up", _another_place, "no bytes answer look-ups"),
    ],
)
async def test_hostile_elements_end_the_job(
    content: str, change: Callable[[exchange_pb2.PeerMessage], None], says: str, tmp_path: Path
) -> None:
    """Points of another order, more of them than stated, or fewer; whose they are is said."""
    tables = without(HERE.tables, LABEL_HOLDER, NEW)
    federation = Federation(tmp_path, tables, serve={LABEL_HOLDER: config()}, policies=PERMITTED)
    finished(await federation.train(spec(PARAMS, alignment="psi", obfuscation="standard")))
    federation.tamper = lambda sender, to, parcel: (
        change(parcel) if name_of(parcel) == content and B in (sender, to) else None
    )
    federation.jobs.submit(predict_request(model="job", job="s", protocol="interactive", serve=True, look_up=True))
    if (await phase(federation, "s", "serve")).state == "running":
        await asyncio.sleep(0.5)
        with pytest.raises((NotServed, Silent)):
            await ask(federation, records=[record(NEW[0])])
        await phase(federation, "s", "none")
    failed(federation.jobs.status("s")[0], says)
    await federation.close()


async def test_a_replayed_look_up_is_answered_once(tmp_path: Path) -> None:
    """The same message again has no second answer and charges nothing; another one in its place is refused."""
    messages: list[exchange_pb2.PeerMessage] = []
    async with serving(tmp_path) as federation:
        federation.tamper = lambda _sender, _to, parcel: messages.append(copy_of(parcel))
        await ask(federation, records=[record(NEW[0])])
        charged, (look_up, _) = asked_of(federation, B), [it for it in messages if name_of(it) == "look_ups"]
        await federation.node(B).deliver(LABEL_HOLDER, copy_of(look_up))
        other = copy_of(look_up)
        other.prediction.look_ups.points = bytes([9, *bytes(31)])
        with pytest.raises(TreetapError, match="came again with other content"):
            await federation.node(B).deliver(LABEL_HOLDER, other)
        (answer,) = (await ask(federation, records=[record(NEW[1])])).predictions
        assert answer.scores[0] == pytest.approx(EXACT[4], abs=1e-9)
        assert [it.round for it in messages if name_of(it) == "looked_up"] == [0, 0, 1, 1]
        assert asked_of(federation, B) == charged


def copy_of(parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
    """What was sent, whatever becomes of it."""
    made = exchange_pb2.PeerMessage()
    made.CopyFrom(parcel)
    return made


def test_a_place_is_named_after_as_many_look_ups() -> None:
    """A label holder that names more places of the list than it has looked up gets no direction of them."""
    made = object.__new__(RaisedList)
    made._opened = SimpleNamespace(alignment=SimpleNamespace(records=np.arange(5)), ways=1)  # type: ignore[assignment]
    made._to, made._named, made._answered = LABEL_HOLDER, set(), 1
    for rows in ([0, 4], [1, 6], [6]):
        made.check(np.array(rows))
    with pytest.raises(Malformed, match="names 2 records of the list after 1 look-ups"):
        made.check(np.array([7]))


@pytest.mark.parametrize(
    ("asked", "policies", "alignment", "says"),
    [
        ({"protocol": "interactive"}, PERMITTED, "psi", "serve the model"),
        ({"protocol": "interactive", "serve": True}, PERMITTED, "sorted-ids", "train with alignment = 'psi'"),
    ],
)
async def test_what_cannot_be_looked_up(
    asked: dict[str, Any], policies: Any, alignment: str, says: str, tmp_path: Path
) -> None:
    """Tables, and ids that nobody blinds: by name, before any party hears of it."""
    federation = Federation(tmp_path, HERE.tables, serve={LABEL_HOLDER: config()}, policies=policies)
    finished(await federation.train(spec(PARAMS, alignment=alignment, obfuscation="standard")))
    with pytest.raises(ConfigError, match=says):
        federation.jobs.submit(predict_request(model="job", job="s", look_up=True, **asked))
    await federation.close()


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({}, "its policy has no look_ups_per_day under"),
        ({**PERMITTED[B], "columns": {"min_candidate_bits": 40}}, "its policy has min_candidate_bits"),
    ],
)
async def test_a_policy_lets_nobody_look_up(policy: dict[str, Any], says: str, tmp_path: Path) -> None:
    """By default, and where directions of single records are not to be told."""
    federation = Federation(tmp_path, HERE.tables, serve={LABEL_HOLDER: config()}, policies={**PERMITTED, B: policy})
    finished(await federation.train(spec(PARAMS, alignment="psi", obfuscation="standard")))
    federation.jobs.submit(predict_request("interactive", model="job", job="s", serve=True, look_up=True))
    failed(await phase(federation, "s", "serve"), says)
    await federation.close()


async def test_refreshed_lists_and_a_party_that_is_away(tmp_path: Path) -> None:
    """Another attempt has another list; a request under way is answered; without look-ups none is taken."""
    lists: list[bytes] = []
    async with serving(tmp_path) as federation:
        federation.tamper = lambda _sender, _to, parcel: (
            lists.append(parcel.prediction.listed_ids.points) if name_of(parcel) == "listed_ids" else None
        )
        await asyncio.sleep(11)
        federation.node(LABEL_HOLDER).served_models.rereads += 1
        under_way = ask(federation, records=[record(NEW[0])])
        await asyncio.sleep(5)
        assert (await phase(federation, "s", "serve")).state == "running"
        await asyncio.sleep(1)
        assert (await under_way).predictions[0].scores[0] == pytest.approx(EXACT[3], abs=1e-9)
        assert [len(each) for each in lists] == [96, 96]
        (found,) = (await ask(federation, records=[record(NEW[0])])).predictions
        assert found.scores[0] == pytest.approx(EXACT[3], abs=1e-9)
        federation.freeze(C)
        with pytest.raises(TreetapError):
            await ask(federation, records=[record(NEW[0])], within_s=2.0)


async def test_a_model_without_look_ups_takes_no_records(tmp_path: Path) -> None:
    """Its client hears it by name."""
    federation = Federation(tmp_path, HERE.tables, serve={LABEL_HOLDER: config()})
    finished(await federation.train(spec(PARAMS, alignment="psi", obfuscation="standard")))
    await serve(federation, protocol="interactive")
    with pytest.raises(BadInput, match="without look_up"):
        await ask(federation, records=[record(NEW[0])])
    await federation.close()
