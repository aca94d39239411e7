"""`treetap forget`: a forgotten id is in no file of the state folder, and the rest is as before.

- The content of a state folder's files, in every encoding in which they may have an id.
- `treetap forget`: a forgotten id is in no file of the state folder, and the rest is as before.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
from binascii import Error
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.campaign.small_jobs import PREDICTIONS, PREVIEWS, TRAININGS, begin, play, trained, training_of
from tests.commands.command import treetap_here, write
from tests.serving.served import IDS
from tests.simulator import Federation, run
from tests.worlds import PARTIES
from treetap.models import keyed_ids
from treetap.models.arrays import content_of, read_arrays
from treetap.models.durable import make_folder, write_whole
from treetap.models.keyed_ids import HASH_BYTES, KEY
from treetap.models.store import read_manifest
from treetap.ops.forget.forgetting import forget, forget_rows, row_of
from treetap.party.config import PartyConfig
from treetap.party.prediction.query_counts import QueryCounts
from treetap.party.runtime.ledger import Charge, Kind, Ledger, Occasion, ledger_of
from treetap.party.serving.decisions import hashed, key_of
from treetap.process.lifecycle import sole_user
from treetap.tables.record_ids import Ids
from treetap.tables.written import content_of as table_content
from treetap.tables.written import written
from treetap.wire.own_rows import FORGOTTEN, OwnRows, keep
from treetap.wire.transcript import TranscriptReader
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

_BASE64 = re.compile(rb"[A-Za-z0-9+/]{8,}={0,2}")
FIRST = ["serving", "preview of records"]
STORIES = [*FIRST, *(story for story in (*TRAININGS, *PREDICTIONS, *PREVIEWS) if story not in FIRST)]
HOLDER, FEATURE, _ = PARTIES
#: Of the training, and of the prediction.
GONE = ["r00003", IDS[0]]


def holding(state: Path, ids: Iterable[str]) -> set[str]:
    """The places of files that have one of the ids: as text, or as a hash under any of the party's keys or none."""
    files = {path.relative_to(state).as_posix(): list(_views(path)) for path in state.rglob("*") if path.is_file()}
    keys = {key for path in state.rglob("*") if path.is_file() for key in _keys(path)}
    needles = [needle for text in ids for needle in _needles(text, keys)]
    return {place for place, views in files.items() if any(needle in view for view in views for needle in needles)}


def _needles(text: str, keys: Iterable[bytes]) -> Iterator[bytes]:
    yield text.encode()
    yield hashlib.sha256(text.encode()).digest()[:8]
    for key in keys:
        yield blake2b(text.encode(), digest_size=HASH_BYTES, key=key).digest()
        yield hashed(key, text).encode()


def _keys(path: Path) -> Iterator[bytes]:
    if path.suffix == ".own":
        yield OwnRows.read(path).key
    elif path.suffix == ".npz":
        yield from (array.tobytes() for name, array in read_arrays(path).items() if name in (KEY, "key"))
    elif path.name == "key.json":
        yield key_of(path.parent)
    elif path.parent.name == "queries":
        yield bytes.fromhex(json.loads(path.read_text().splitlines()[0])["key"])


def _views(path: Path) -> Iterator[bytes]:
    """The file as it is, and what is compressed or encoded in it."""
    raw = path.read_bytes()
    yield raw
    if path.suffix == ".tap":
        yield from (record.message for record in TranscriptReader(path))
    elif path.suffix == ".npz":
        yield from (array.tobytes() for array in read_arrays(path).values())
    elif path.suffix == ".parquet":
        yield str(pq.read_table(path).to_pylist()).encode()
    elif path.suffix in (".json", ".jsonl"):
        for text in _BASE64.findall(raw):
            try:
                yield base64.b64decode(text, validate=True)
            except Error:
                continue


def _played(folder: Path, story: str) -> Federation:
    """A federation at its end, whose parties count queries of records."""

    async def main() -> Federation:
        federation = begin(folder, story)
        for name, config in federation.configs.items():
            partners: dict[str, Any] = {"*": {"queries_per_record": 9}}
            policy = config.policy.with_lines({"partners": partners})
            served = config.serve and config.serve.model_copy(update={"decision_days": 9})
            federation.configs[name] = config.model_copy(update={"serve": served}).under(policy)
            federation.restart(name)
        status = await play(federation, story)
        assert status.state in ("finished", "cancelled"), status.error
        return federation

    if story not in (*TRAININGS, *PREVIEWS):
        trained(training_of(story))
    return run(main())


def _content(state: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in state.rglob("*") if path.is_file()}


def _noted(config: PartyConfig) -> list[Charge]:
    """What the ledger says was forgotten, as another process reads it."""
    return Ledger(config.state).charges(Kind.FORGOTTEN)


def _killed(config: PartyConfig, at: int) -> bool:
    """Forget, but for a kill at a write; False if there is no such write."""
    real, writes = os.replace, 0

    def dying(source: Path, target: Path) -> None:
        nonlocal writes
        writes += 1
        if writes == at + 1:
            raise KeyboardInterrupt
        real(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", dying)
        try:
            forget(config, Ids.of(GONE), dry=False, transcripts=True)
        except KeyboardInterrupt:
            return True
    return False


@pytest.mark.second_tier(but=len(FIRST))
@pytest.mark.parametrize("story", STORIES)
def test_a_forgotten_id_is_in_no_file(story: str, tmp_path: Path) -> None:
    """Neither as text nor as a hash that the party can compute; all files of the state folder have a kind.

    After a kill at any write the same command goes on.
    """
    federation = _played(tmp_path, story)
    for name, config in federation.configs.items():
        before, had = _content(config.state), holding(config.state, GONE)
        assert [place for place in before if row_of(place.relative_to(config.state).as_posix()) is None] == []
        looked = forget(config, Ids.of(GONE), dry=True, transcripts=True)
        assert _content(config.state) == before, name
        for at in count() if name in (HOLDER, FEATURE) else ():
            copied = config.model_copy(update={"state": shutil.copytree(config.state, tmp_path / f"{name}{at}")})
            if not _killed(copied, at):
                assert at >= len(looked.files)
                break
            forget(copied, Ids.of(GONE), dry=False, transcripts=True)
            assert holding(copied.state, GONE) == set(), at
            assert {"transcripts": looked.removed} in [note.details for note in _noted(copied)], at
            assert all(read_manifest(model) for model in (copied.state / "models").iterdir())
        done = forget(config, Ids.of(GONE), dry=False, transcripts=True)
        assert (done.files, done.removed) == (looked.files, looked.removed)
        noted = name == HOLDER and story == "serving"
        assert noted == any(place.startswith("decisions/") for place in done.files)
        assert had == {*done.files, *(place for place in had if place.split("/")[1] in done.removed)}
        assert holding(config.state, GONE) == set()
        assert forget(config, Ids.of(GONE), dry=False, transcripts=True).files == {}
        for model in (config.state / "models").iterdir():
            read_manifest(model)
        notes = [(note.amount, note.occasion.partners, note.details) for note in _noted(config)]
        assert notes == [(2, (), {"transcripts": done.removed}), (2, (), {"transcripts": []})]


def _kept(folder: Path) -> Path:
    """A bank's file, whose state has two persons in files of several kinds."""
    state, ids = folder / "state", Ids.of(["ann", 'b"o,b', "cy"])
    with TranscriptWriter(state / "transcripts" / "job") as writer:
        entry = keep(writer.folder, OwnRows.of(np.arange(3), ids))
        writer.append(TranscriptRecord.OWN, "", "own_alignment", "job", 1, 0, 0, entry)
    QueryCounts(state, "shop").enter("bank", ids, 5)
    (state / "predictions").mkdir()
    (state / "predictions" / "p.csv").write_text('"who","prediction"\n"ann",1\n"b""o,b",2.50\n"cy",3\n')
    make_folder(state / "noisy_labels")
    draw = content_of({"labels": np.arange(2), **keyed_ids.drawn(["ann", "cy"])})
    write_whole(state / "noisy_labels" / "0.npz", draw)
    ledger_of(state).enter(Charge(Kind.TRAINING, Occasion("loans", ("shop",), "coordinator", "job", 1)))
    return write(folder / "bank.toml", {"name": "bank", "state": "state", "insecure": True})


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It forgets what it said by --dry-run, rows stay byte for byte, and it names what it does not reach."""
    config, gone = _kept(tmp_path), tmp_path / "gone.txt"
    state, forgotten = tmp_path / "state", ("forget", "--config", str(config), "--ids", str(gone))
    gone.write_text('b"o,b\n')
    (left := state / "predictions" / "p.csv.part").write_bytes(b'"who","predi')
    before = _content(state)
    assert treetap_here(*forgotten, "--dry-run") == 0
    assert "1 ids would be forgotten, in 3 files" in capsys.readouterr().out
    assert _content(state) == {**before, state / "lock": b""}
    assert treetap_here(*forgotten, "--json") == 0
    assert not left.exists()
    said = json.loads(capsys.readouterr().out)
    assert [row["records"] for row in said["forgotten"]] == [1, 1, 1]
    reasons = {row["what"]: row["why"] for row in said["not_reached"]}
    assert reasons["partner shop"].startswith("keeps what it was sent in 1 jobs; transcripts say of 1 that they had")
    assert reasons["transcripts/job"].startswith("messages name places in the common order")
    assert (state / "predictions" / "p.csv").read_text() == '"who","prediction"\n"ann",1\n"cy",3\n'
    (rows,) = (state / "transcripts" / "job").glob("*.own")
    assert OwnRows.read(rows).rows.tolist() == [0, FORGOTTEN, 2]
    gone.write_text("ann\n")
    assert treetap_here(*forgotten) == 0
    assert "another draw for that table is charged" in " ".join(capsys.readouterr().out.split())
    assert not (state / "noisy_labels" / "0.npz").exists()
    assert treetap_here(*forgotten, "--dry-run") == 0
    assert "in 0 files: none has one, look how the table writes ids" in capsys.readouterr().out
    assert treetap_here("ledger", "--config", str(config), "--json") == 0
    sums = json.loads(capsys.readouterr().out)["sums"]
    assert [(row["charges"], row["sum"]) for row in sums if row["kind"] == "forgotten ids"] == [(2, 2)]


def test_it_does_not_begin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an id, beside an unfinished job, at a damaged file, while the party runs; nothing has changed then."""
    config, gone = _kept(tmp_path), tmp_path / "gone.txt"
    state, forgotten = tmp_path / "state", ("forget", "--config", str(config), "--ids", str(gone))
    gone.write_text("\n")
    assert treetap_here(*forgotten) == 2
    assert "the file has no id" in capsys.readouterr().err
    gone.write_text("ann\n")
    with sole_user(state):
        assert treetap_here(*forgotten) == 2
    assert "another process uses this folder" in capsys.readouterr().err
    before = _content(state)
    (state / "jobs" / "late").mkdir(parents=True)
    (state / "jobs" / "late" / "job.json").write_text("{}")
    assert treetap_here(*forgotten) == 2
    assert "bank: job late is unfinished" in capsys.readouterr().err
    shutil.rmtree(state / "jobs" / "late")
    (state / "predictions" / "p.csv").write_bytes(b'"who","prediction"\n"ann')
    assert treetap_here(*forgotten) == 2
    assert "p.csv: ends within quotation marks" in capsys.readouterr().err
    assert {**_content(state), state / "predictions" / "p.csv": before[state / "predictions" / "p.csv"]} == before


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rows_of_several_id_columns(form: str, tmp_path: Path) -> None:
    """An id is the text of each column after its length; quotes, line ends and types of the others stay."""
    path = tmp_path / f"p.{form}"
    columns = {
        "site": ["a", "ab", 'x"\ny'],
        "nr": [12, 2, 7],
        "prediction": ["0", "1", "1"],
        "score": [0.1, 2.0, 1e300],
    }
    table = pa.table(columns)
    path.write_bytes(table_content(table, form))
    before = path.read_bytes()
    assert forget_rows(path, {"2:ab1:2"}, dry=True) == 1
    assert path.read_bytes() == before
    assert forget_rows(path, {"2:ab1:2", "2:ab1:7"}, dry=False) == 1
    assert written(path).equals(table.take([0, 2]))
    assert path.read_bytes() == bytes(table_content(table.take([0, 2]), form))
