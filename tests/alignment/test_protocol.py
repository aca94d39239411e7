"""Private set intersection: whatever the parties hold, all end with the same records in the same order."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests import replay
from tests.campaign.cipher import KeysMade, ciphers
from tests.library.psi.naive import uniform_bytes
from tests.simulator import COORDINATOR, Federation, Message, failed, finished, run
from tests.worlds import PARTIES, World, assert_oracles_model, spec
from treetap.party.runtime import mailbox
from treetap.party.runtime.mailbox import OVERHEAD
from treetap.protocols.alignment import turns
from treetap.protocols.job_spec import put_params
from treetap.protocols.prediction import predict_request
from treetap.psi import lists
from treetap.psi.group import Exponent
from treetap.psi.lists import group
from treetap.tables.record_ids import Ids
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import exchange_pb2, setup_pb2

NAMES = ["clinic", "lab", "pharmacy", "insurer", "registry"]
PARAMS = BoostingParams(n_estimators=1, max_depth=1, max_bin=2, min_child_weight=0.0)
Tables = dict[str, tuple[list[str], dict[str, pa.Table]]]


def tables(ids: list[list[str]], seed: int = 0) -> Tables:
    """A table per party with these ids in an order of its own; the first party has labels."""
    rng = np.random.default_rng(seed)
    found: Tables = {}
    for name, own in zip(NAMES, ids, strict=False):
        content = {"id": [own[i] for i in rng.permutation(len(own))], name[0]: rng.normal(size=len(own))}
        if not found:
            content["y"] = np.arange(len(own)) % 2
        table = pa.table(content)
        found[name] = ([name[0]], {"train": table, "predict": table})
    return found


def job(parties: int, params: BoostingParams = PARAMS) -> setup_pb2.JobSpec:
    """A training of these parties, aligned by psi."""
    made = setup_pb2.JobSpec(
        table="train",
        aggregator=NAMES[0],
        feature_parties=NAMES[1:parties],
        scheme="paillier",
        key_bits=1024,
        obfuscation="standard",
        alignment="psi",
    )
    put_params(made, params)
    return made


def aligned(federation: Federation) -> list[list[str]]:
    """What each party has on its disk: the ids of the common records, in the common order."""
    found = []
    for name, (_, own) in federation.tables.items():
        ids = sorted(own["train"].column("id").to_pylist())
        with np.load(federation.state(name) / "jobs" / "job" / "alignment.npz") as stored:
            found.append([ids[place] for place in stored["records"]])
    return found


def watched(federation: Federation) -> list[list[str]]:
    """What each party has aligned when the columns are binned, once they are."""
    found: list[list[str]] = []

    def look(message: Message) -> None:
        if message.word == "bin" and not found:
            found.extend(aligned(federation))

    federation.hook = look
    return found


def intersect(folder: Path, ids: list[list[str]], seed: int = 0) -> list[list[str]]:
    """Train, and return what each party had aligned when the columns were binned."""

    async def main() -> list[list[str]]:
        federation = Federation(folder, tables(ids, seed))
        found = watched(federation)
        finished(await federation.train(job(len(ids))))
        return found

    return run(main())


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("shape", range(20))
def test_everybody_finds_the_plain_intersection_in_one_order(
    shape: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two to five parties of random sizes, with ids of any text: each names just the records that all hold.

    No list is longer than its bound, where that leaves no more than a message's own fields.
    """
    monkeypatch.setattr(mailbox, "ALLOWANCE", OVERHEAD + 100)
    rng = random.Random(shape)
    parties = 2 + shape % 4
    common = [f"c{number:03d}" for number in range(rng.randrange(4, 30))]
    ids = [[*common] for _ in range(parties)]
    for number in range(rng.randrange(60)):  # held by some, by one, by all but one
        for own in rng.sample(ids, rng.randrange(1, parties)):
            own.append(rng.choice(("ä", "x", "日本", "")) + f"{number} {'a' * rng.randrange(40)}z")
    found = intersect(tmp_path / "federation", ids, shape)
    assert sorted(found[0]) == sorted(common)
    assert all(each == found[0] for each in found)


def test_the_common_order_is_drawn_anew_and_tells_nothing(tmp_path: Path) -> None:
    """Twice the same tables, two orders; neither is the order of the ids."""
    ids = [[f"i{number:02d}" for number in range(30)]] * 3
    first, second = (intersect(tmp_path / name, ids)[0] for name in ("a", "b"))
    assert sorted(first) == sorted(second) == ids[0]
    assert len({tuple(first), tuple(second), tuple(ids[0])}) == 3


@pytest.mark.parametrize("parties", [2, 3])
async def test_nothing_in_common_ends_the_job(parties: int, tmp_path: Path) -> None:
    """No common record, though every two of three parties share some: bad input, and nothing is left."""
    ids = [["a", "b", "x"], ["b", "c", "y"], ["a", "c", "z"]] if parties == 3 else [["a", "b"], ["c", "d"]]

    federation = Federation(tmp_path / "federation", tables(ids))
    failed(await federation.train(job(parties)), "no record is common to all parties", bad_input=True)
    for state in federation.states.values():
        assert list((state / "jobs").iterdir()) == []


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("parties", [2, 3])
async def test_transcripts_hold_no_id(parties: int, tmp_path: Path) -> None:
    """Nothing that a party receives or sends while records are aligned has an id in clear, common or not."""
    ids = [[f"person-{number}" for number in range(10 * place, 10 * place + 25)] for place in range(parties)]

    federation = Federation(tmp_path / "federation", tables(ids), record="both")
    assert (await federation.train(job(parties))).state == "finished"
    await federation.close()
    everybody = {value.encode() for own in ids for value in own}
    for state in federation.states.values():
        messages = b"\n".join(record.message for record in TranscriptReader(state / "transcripts" / "job"))
        assert b"person-" not in messages
        assert not any(value in messages for value in everybody)
        hashed = [group().hash_points(uniform_bytes(value)) for value in everybody]
        assert not any(point in messages for point in hashed)


def test_in_a_ring_nobody_sees_which_two_parties_share_an_id(tmp_path: Path) -> None:
    """Of an id that two of three parties hold, no party but the combiner sees one point twice, in any two messages.

    The combiner sees overlaps, of points that it cannot link to ids.
    """
    common = [f"c{number}" for number in range(6)]
    ids = [[*common, *(f"ab{i}" for i in range(5))], [*common, *(f"ab{i}" for i in range(5))], [*common, "only c"]]
    per_party: dict[str, list[bytes]] = {name: [] for name in NAMES[:3]}

    async def main() -> None:
        federation = Federation(tmp_path / "federation", tables(ids), record="received")
        assert (await federation.train(job(3))).state == "finished"
        await federation.close()
        for name, state in federation.states.items():
            for record in TranscriptReader(state / "transcripts" / "job"):
                if record.step == "blinded_ids":
                    block = exchange_pb2.PeerMessage.FromString(record.message).alignment.blinded_ids.points
                    per_party[name] += [block[at : at + 32] for at in range(0, len(block), 32)]

    run(main())
    for name in NAMES[1:3]:
        assert len(set(per_party[name])) == len(per_party[name]) > 20
    twice = len(per_party[NAMES[0]]) - len(set(per_party[NAMES[0]]))
    assert twice > 0


def test_without_the_one_time_exponent_the_last_hop_would_know() -> None:
    """Why the owner's list travels under an exponent of its own (docs/adr/0013).

    Raised by all but its owner the list is raised for the last time by the party before the owner. Under the fresh
    exponents alone that party would hold the very points that the owner compares; here it does not.
    """
    first, second, third = (Exponent.draw() for _ in range(3))

    def through(block: bytes, *exponents: Exponent) -> bytes:
        for exponent in exponents:
            block = lists.raise_points(exponent.for_kernel(), block)
        return block

    shared = Ids.of(["shared by a and c, not by b"]).packed()
    # As written: a's list is raised by a, b, c; the last, c, sees the end, and c's own list ends in the same points.
    of_a = through(lists.blind(first.for_kernel(), *shared), second, third)
    of_c = through(lists.blind(third.for_kernel(), *shared), first, second)
    assert of_a == of_c
    # As done: a one-time exponent stays on a's list until it is back.
    once = Exponent.draw()
    seen_by_c = through(lists.blind(once.for_kernel(), *shared), second, third)
    assert seen_by_c != of_c
    assert through(seen_by_c, first.over(once)) == of_c


SAMPLED = replace(replay.PARAMS, subsample=0.7)


def _rows(here: World, order: list[int]) -> World:
    """The world with its records in another order."""
    return World(here.tables, [block[order] for block in here.blocks], here.y[order], here.new, here.classes)


def _killed_and_resumed(folder: Path, number: int, victim: str) -> None:
    """Kill at one message of the set-up, resume, and compare with the oracle on the order that was found.

    Four of five compute with a transparent cipher; private set intersection is the real one.
    """
    order: list[int] = []

    async def main() -> None:
        federation = Federation(folder, replay.HERE.tables)
        killed = False

        def hook(message: Message) -> None:
            nonlocal killed
            if message.number == number and not message.served and not killed:
                killed = True
                federation.restart(victim)
            if message.word == "begin_tree" and not order:
                path = federation.state(PARTIES[0]) / "jobs" / "job" / "alignment.npz"
                with np.load(path) as stored:
                    order.extend(stored["records"].tolist())

        federation.hook = hook
        job = spec(SAMPLED, obfuscation="standard", alignment="psi")
        status = await federation.train(job)
        assert killed
        if status.state != "finished":
            assert status.state == "interrupted", status.error
            assert (await federation.resume()).state == "finished"
        assert_oracles_model(federation.states, _rows(replay.HERE, order).oracle(SAMPLED))

    with ciphers(KeysMade(), transparent=number % 5 != 0):
        run(main())


@pytest.mark.second_tier
@pytest.mark.campaign
@pytest.mark.long
def test_killed_at_messages_of_the_alignment(tmp_path: Path) -> None:
    """Whoever is killed whenever: records are sampled by their place, and the model is that of one common order.

    That is at the first message of each word and at some others; `python -m tests.campaign kills` kills every process
    at every one.
    """
    job = spec(SAMPLED, obfuscation="standard", alignment="psi")
    log = replay.faultless(tmp_path / "faultless", job=job)
    last = next(message.number for message in log if message.word == "begin_tree")
    words = {message.word for message in log[: last + 1]}
    assert {"blind_ids", "relay_ids", "combine_ids", "refresh_ids", "trace_ids", "raise_ids", "match_ids"} < words
    first = {message.word: message.number for message in reversed(log[: last + 1])}
    for turn, number in enumerate(sorted({*range(0, last + 12, 27), *first.values()})):
        victim = (*PARTIES, COORDINATOR)[turn % 4]
        try:
            _killed_and_resumed(tmp_path / str(number), number, victim)
        except BaseException as failure:
            failure.add_note(f"{victim} at message {number}, {log[number].word} to {log[number].to}")
            raise


async def test_predictions_of_records_that_somebody_lacks_are_empty(tmp_path: Path) -> None:
    """Every record that was asked for has a row; where the parties could not answer together its cells are empty."""
    federation = Federation(tmp_path / "federation", replay.HERE.tables)
    job = spec(replay.PARAMS, obfuscation="standard", alignment="psi")
    assert (await federation.train(job)).state == "finished"
    whole = pq.read_table((await federation.predict(predict_request(model="job"))).predictions)
    path = federation.folder / PARTIES[1] / "predict.parquet"
    table = pq.read_table(path)
    gone = sorted(table.column("id").to_pylist())[1]
    pq.write_table(table.filter(pc.not_equal(table.column("id"), gone)), path)
    part = pq.read_table((await federation.predict(predict_request(model="job"))).predictions)
    assert part.column("id").to_pylist() == whole.column("id").to_pylist()
    place = whole.column("id").to_pylist().index(gone)
    for name in whole.column_names[1:]:
        expected = whole.column(name).to_pylist()
        expected[place] = None
        assert part.column(name).to_pylist() == expected
    (federation.folder / PARTIES[0] / "one.txt").write_text(gone + "\n")
    request = predict_request(model="job", records_file="one.txt")
    nothing = failed(
        await federation.predict(request), "none of the records to predict is common to all parties", bad_input=True
    )
    assert gone not in nothing.error


async def test_a_table_with_other_ids_is_not_taken_for_the_aligned_one(tmp_path: Path) -> None:
    """Between alignment and the first tree the table has changed: the resume says so."""
    federation = Federation(tmp_path / "federation", replay.HERE.tables)

    federation.kill_at(PARTIES[1], lambda message: message.word == "make_keys")
    assert (await federation.train(spec(replay.PARAMS, obfuscation="standard", alignment="psi"))).state == "interrupted"
    path = federation.folder / PARTIES[1] / "train.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(1), path)
    federation.start(PARTIES[1])
    status = await federation.resume()
    assert (status.state, status.bad_input) == ("interrupted", True)
    assert "holds other ids than when job job was aligned" in status.error
    pq.write_table(table, path)
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, replay.HERE.oracle(replay.PARAMS))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("parties", [2, 3])
def test_a_list_that_has_been_here_is_no_longer_than_then(parties: int, tmp_path: Path) -> None:
    """Nor is one's own, and common points are no more than it has; at any pass but those that bring others' lists."""
    ids = [[f"i{number}" for number in range(12)]] * parties
    passes = [turn.stage for turn in turns(parties) if turn.step == "pass_ids"]

    async def attempt(stage: int) -> None:
        federation = Federation(tmp_path / str(stage), tables(ids))

        def tamper(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
            if name_of(parcel) == "blinded_ids" and parcel.stage == stage:
                parcel.alignment.blinded_ids.points *= 200

        federation.tamper = tamper
        status = await federation.train(job(parties))
        assert f"round 0, stage {stage} has more than the" in status.error

    for stage in passes[parties - 1 :]:
        run(attempt(stage))


BAD_POINTS = {
    "one point less": (
        lambda points: points[32:],
        "12 blinded identifiers, 11 came back|they were 1[12] before|does not hold all|common records, .* or others",
    ),
    "half a point": (lambda points: points[:-1], "no whole number of points"),
    "a point twice": (lambda points: points[32:64] + points[32:], "holds one twice"),
    "no point": (lambda points: bytes(32) + points[32:], "not a point of the group"),
}


@pytest.mark.second_tier(but=4)
@pytest.mark.parametrize("fault", BAD_POINTS)
@pytest.mark.parametrize("parties", [2, 3])
def test_points_that_cannot_be_are_told(parties: int, fault: str, tmp_path: Path) -> None:
    """Whatever list a peer spoils on its way, the job ends with a message, and no party goes on with a wrong set."""
    spoil, expected = BAD_POINTS[fault]
    ids = [[f"i{number}" for number in range(12)]] * parties

    async def attempt(level: int) -> bool:
        federation = Federation(tmp_path / str(level), tables(ids))
        spoilt = False

        def tamper(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
            nonlocal spoilt
            if name_of(parcel) == "blinded_ids" and parcel.stage == level and not spoilt:
                spoilt = True
                parcel.alignment.blinded_ids.points = spoil(parcel.alignment.blinded_ids.points)

        federation.tamper = tamper
        status = await federation.train(job(parties))
        await federation.close()
        if spoilt and not (fault == "one point less" and status.state == "finished"):
            assert status.state == "failed", (level, status.error)
            assert re.search(expected, status.error), (level, status.error)
        return spoilt

    passes = [turn.stage for turn in turns(parties) if turn.step == "pass_ids"]
    assert all(run(attempt(level)) for level in passes)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob", "reg:squarederror"])
def test_labels_are_those_of_the_common_records(objective: str, tmp_path: Path) -> None:
    """Labels of records that other parties lack do not count, neither as a class nor as a difference."""
    common = [f"c{number:02d}" for number in range(12)]
    ids = [[*common, "x0", "x1"], [*common, "y0"]]

    async def main(label: Callable[[str], int], expected: tuple[str, str]) -> None:
        parties = tables(ids)
        _, own = parties[NAMES[0]]
        y = pa.array([label(value) for value in own["train"].column("id").to_pylist()])
        own["train"] = own["train"].set_column(own["train"].column_names.index("y"), "y", y)
        federation = Federation(tmp_path / expected[0], parties)
        status = await federation.train(job(2, replace(PARAMS, objective=objective)))
        assert status.state == expected[0]
        assert expected[1] in status.error
        if status.state == "finished":
            manifest = json.loads((federation.state(NAMES[0]) / "models" / "job" / "manifest.json").read_text())
            assert manifest["classes"] == ([] if objective == "reg:squarederror" else ["4", "7"])

    def two(value: str) -> int:
        return 5 if value == "x0" and objective == "multi:softprob" else 4 if value < "c06" else 7

    def one(value: str) -> int:
        return 4 if value[0] == "x" else 7

    run(main(two, ("finished", "")))
    kind = "every record has the same target" if objective == "reg:squarederror" else "holds one class only"
    run(main(one, ("failed", f"clinic: {tmp_path}/failed/clinic/train.parquet: label column 'y': {kind}")))
