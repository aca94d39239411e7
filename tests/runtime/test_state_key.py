"""The state key of a party: what it encrypts, what a start compares, and its change in the middle of a job."""

from __future__ import annotations

import asyncio
import base64
import errno
import io
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from party.runtime import state_key as key
from party.runtime import state_rotation as rotation
from party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from party.runtime.state_files import KINDS, kind_of, sealed
from party.runtime.state_key import check_key, seal_of
from party.runtime.state_rotation import rotate
from tests.commands.command import treetap, treetap_here, write
from tests.needs import needs_library_of
from tests.replay import HERE, JOB, ORACLE
from tests.simulator import Federation, Message, run
from tests.trainings import fitting, jobs_of, policies
from tests.worlds import PARTIES, World, assert_oracles_model, world
from treetap.errors import ConfigError, DataError
from treetap.models.arrays import read_arrays
from treetap.models.durable import read_whole, write_whole
from treetap.models.sealed import MAGIC, StateKey
from treetap.process.secret import Secret
from treetap.protocols.job_spec import params_of
from treetap.protocols.prediction import predict_request
from treetap.protocols.registry import TRAINING, training
from treetap.trees.params import TreeParams
from treetap.wire.transcript import TranscriptReader
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2 import setup_pb2
from treetap.wire.v2.transcript_pb2 import OwnSplit, TranscriptRecord

OLD, NEW = StateKey(bytes(32)), StateKey(bytes(31) + b"\1")
#: A world in which every party wins splits in each of the trainings.
WIDE = world(40, (1, 1, 1), seed=25, fresh=6)


def key_file(folder: Path, number: int = 0) -> Secret:
    """The place of `OLD`, or of `NEW`."""
    path = folder / f"{number}.key"
    path.write_text(f"{number:064x}\n")
    return Secret(file=path)


def canaries(here: World) -> Iterator[bytes]:
    """The ids of a world's records and the cells of its columns, as text, base64 and in binary."""
    for block in here.blocks:
        for value in block.ravel()[:50]:
            if value == value and value != round(value):
                yield from (repr(float(value)).encode(), struct.pack("<d", value), struct.pack(">d", value))
    ids = [f"r{i:05d}".encode() for i in range(len(here.y))]
    yield from ids
    yield from (base64.b64encode(name) for name in ids)


def scores(state: Path) -> Iterator[bytes]:
    """Numbers of the arrays of jobs under way, such as scores, in binary, out of files under `OLD`."""
    for path in (state / "jobs").glob("*/*.npz"):
        arrays = read_arrays(io.BytesIO(read_whole(path, seal_of(state, OLD))))
        for array in arrays.values():
            if array.dtype == np.float64:
                yield from (struct.pack("<d", value) for value in array.ravel()[:50].tolist() if value % 1 > 0)


def files_below(state: Path) -> Iterator[Path]:
    """All files of a state folder."""
    return (path for path in sorted(state.rglob("*")) if path.is_file())


def places(state: Path) -> Iterator[str]:
    """Their places in it."""
    return (path.relative_to(state).as_posix() for path in files_below(state))


def assert_kept(state: Path, here: World) -> set[str]:
    """Every file is of a known kind, and none that a key encrypts has anything of a record; returns their kinds."""
    patterns, secrets = set(), [*canaries(here), *scores(state)]
    for place in places(state):
        kind, content, path = kind_of(place), (state / place).read_bytes(), state / place
        if not kind.clear:
            patterns.add(kind.pattern)
            assert content.startswith(MAGIC), path
            assert [canary for canary in secrets if canary in content] == [], path
            assert b"PK\x03\x04" not in content[:200], path
            assert b"sha256" not in content, path
    return patterns


@pytest.mark.parametrize("protocol", sorted(TRAINING))
@pytest.mark.second_tier
def test_what_a_party_keeps_of_records_is_encrypted(protocol: str, tmp_path: Path) -> None:
    """In a training, at each of its requests, and after a prediction; and the model is as without a key."""
    needs_library_of(protocol)
    job: setup_pb2.JobSpec = next(iter(jobs_of(protocol).EMITTING.values()))
    params = params_of(job)
    here = fitting(WIDE, params) if isinstance(params, TreeParams) else WIDE

    async def main() -> set[str]:
        seen: set[str] = set()
        federation = Federation(
            tmp_path, here.tables, record="both", policies=policies(job), state_key=key_file(tmp_path)
        )

        def look(message: Message) -> None:
            if message.number % 40 == 0 and message.to in federation.states:
                seen.update(assert_kept(federation.state(message.to), here))

        federation.hook = look
        assert (await federation.train(job)).state == "finished"
        predicting = "interactive" if training(protocol).grows_trees and not training(protocol).one_role else None
        if predicting is not None:
            asked = predict_request(model="job", job="predict", protocol=predicting, block=4)
            assert (await federation.predict(asked)).state == "finished"
        await federation.close()
        for state in federation.states.values():
            seen |= assert_kept(state, here)
        return seen

    seen = run(main())
    assert {"transcripts/*/*.tap", "ledger.jsonl", "jobs/*/*.npz"} <= seen


def test_kinds_of_files_say_why_they_are_in_clear() -> None:
    """Of unknown files none is written, and no place of records is in clear."""
    assert all(kind.holds for kind in KINDS)
    assert [sealed(place) for place in ("jobs/a/scores.npz", "jobs/a/job.json", "models/a/continuation.npz")] == [
        *(True, False, True)
    ]
    with pytest.raises(ConfigError, match="secrets/a"):
        kind_of("secrets/a")


def state_with(folder: Path, own: StateKey | None) -> dict[str, bytes]:
    """Write a ledger's first line, a job's array and a transcript into a state folder; returns all its content."""
    seal = None if own is None else seal_of(folder, own)
    check_key(folder, own)
    (folder / "jobs" / "a").mkdir(parents=True)
    (folder / "transcripts" / "a").mkdir(parents=True)
    write_whole(folder / "jobs" / "a" / "scores.npz", b"r00001", seal=seal)
    return content_of(folder)


def content_of(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in files_below(folder)}


@pytest.mark.parametrize(
    ("kept", "given", "says"),
    [
        (OLD, None, f"is encrypted with state key {OLD.id.hex()}: give that key"),
        (OLD, NEW, "as former_state_key, stop the party and run treetap state rotate"),
        (None, NEW, "is in clear: to encrypt the state"),
    ],
    ids=["lost", "another", "of a state in clear"],
)
def test_a_start_with_another_key_is_refused(
    kept: StateKey | None, given: StateKey | None, says: str, tmp_path: Path
) -> None:
    """By name, with the remedy, and before anything is touched."""
    before = state_with(tmp_path, kept)
    with pytest.raises(ConfigError, match=says):
        check_key(tmp_path, given)
    assert content_of(tmp_path) == before
    check_key(tmp_path, kept)


def test_a_damaged_or_missing_note_of_the_key_is_refused(tmp_path: Path) -> None:
    """`key.json` is compared with the key, and a state without it with its files."""
    state_with(tmp_path, OLD)
    note = tmp_path / "key.json"
    content = note.read_text()
    note.write_text(content.replace('"check": "', '"check": "00')[:-1])
    with pytest.raises(ConfigError, match="does not fit state key"):
        check_key(tmp_path, OLD)
    note.unlink()
    for former in (OLD, None):
        with pytest.raises(ConfigError, match="back-up of it back"):
            rotate(tmp_path, NEW, former)
    with pytest.raises(ConfigError, match="back-up of it back"):
        check_key(tmp_path, OLD)


class Killed(BaseException):
    """The end of a process."""


def done(work: Callable[[], object], life: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if the work was done; else its process has ended at a write: the first life's at the first, then the second.

    So each life but the first writes one file.
    """
    left = iter(range(min(life, 1)))

    def write_or_die(path: Path, content: bytes, **more: Any) -> None:
        if next(left, None) is None:
            raise Killed
        write_whole(path, content, **more)

    with monkeypatch.context() as patched:
        patched.setattr(rotation, "write_whole", write_or_die)
        patched.setattr(key, "write_whole", write_or_die)
        try:
            work()
        except Killed:
            return False
        return True


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("now", "former"), [(NEW, OLD), (NEW, None), (None, OLD)], ids=["changed", "begun", "ended"])
def test_a_rotation_in_the_middle_of_a_job_that_is_killed_at_each_write(
    now: StateKey | None, former: StateKey | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A party is killed in its job, its state gets another key, and the job goes on to the oracle's model."""
    old = key_file(tmp_path) if former is not None else None

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables, record="both", state_key=old)
        victim, begun = PARTIES[0], iter(("first tree", "second tree"))

        def kill(message: Message) -> None:
            if message.word == "begin_tree" and not message.served and next(begun) == "second tree":
                federation.hook = None
                federation.kill(victim)

        federation.hook = kill
        assert (await federation.train(JOB)).state == "interrupted"
        state = federation.state(victim)
        assert {"scores.npz", "trees.jsonl"} <= {path.name for path in (state / "jobs" / "job").iterdir()}
        assert former is None or assert_kept(state, HERE)
        lives = 0
        while not done(lambda: rotate(state, now, former), lives, monkeypatch):
            lives += 1
            with pytest.raises(ConfigError, match=r"state_?key"):
                check_key(state, now)
        assert lives > sum(1 for _ in filter(sealed, places(state)))
        check_key(state, now)
        for place in filter(sealed, places(state)):
            assert (state / place).read_bytes().startswith(MAGIC) == (now is not None)
        new = key_file(tmp_path, 1) if now is not None else None
        federation.configs[victim] = config = federation.configs[victim].model_copy(update={"state_key": new})
        config._seal = None
        federation.start(victim)
        await asyncio.sleep(200)
        assert (await federation.resume()).state == "finished"
        assert_oracles_model(federation.states, ORACLE)
        await federation.close()
        assert now is None or assert_kept(state, HERE)
        assert ledger_of(state, config.seal).charges()
        assert list(TranscriptReader(state / "transcripts" / "job", seal=config.seal))

    run(main())


def test_a_rotation_asks_for_the_key_that_files_have(tmp_path: Path) -> None:
    """And writes nothing before it has it; a file in clear among the others is named."""
    before = state_with(tmp_path, OLD)
    for former in (None, NEW):
        with pytest.raises(ConfigError, match=f"former_state_key: .* has files of state key {OLD.id.hex()}"):
            rotate(tmp_path, NEW, former)
    assert content_of(tmp_path) == before
    (tmp_path / "ledger.jsonl").write_bytes(b"{}\n")
    with pytest.raises(DataError, match=r"ledger\.jsonl: is not encrypted, as the others are"):
        rotate(tmp_path, NEW, OLD)
    (tmp_path / "ledger.jsonl").unlink()
    with pytest.raises(ConfigError, match=f"to state key {NEW.id.hex()} was interrupted"):
        rotate(tmp_path, None, OLD)
    rotate(tmp_path, NEW, OLD)
    check_key(tmp_path, NEW)
    assert rotate(tmp_path, NEW, None) == 0


def test_a_rotation_passes_over_what_crashes_leave(tmp_path: Path) -> None:
    """A draft in clear is deleted, an empty file has no key, and a transcript that ends in its key's id is torn."""
    check_key(tmp_path, OLD)
    torn = tmp_path / "transcripts" / "a" / "000001.tap"
    left = {tmp_path / "jobs" / "a" / "scores.npz.part": b"r00001", tmp_path / "jobs" / "a" / "leakage.jsonl": b""}
    for path, content in {**left, torn: MAGIC + OLD.id[:6]}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert rotate(tmp_path, NEW, OLD) == 0
    assert [path.is_file() for path in left] == [False, True]
    assert list(TranscriptReader(torn.parent, seal=seal_of(tmp_path, NEW))) == []


def fill(path: Path, _: bytes) -> None:
    """The writing of a file on a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def configured(folder: Path, **more: Any) -> Path:
    """A bank's file."""
    return write(folder / "bank.toml", {"name": "bank", "state": "state", "insecure": True, **more})


def test_the_commands_change_a_key_and_export_a_transcript(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From clear to a key: the ledger is read by the party's file alone, an auditor's export by everybody."""
    places = {"state_key": {"file": str(key_file(tmp_path).file)}}
    state = tmp_path / "state"
    with TranscriptWriter(state / "transcripts" / "job") as writer:
        writer.append(TranscriptRecord.OWN, "", "own_split", "job", 1, 0, 0, OwnSplit(node=7))
    ledger_of(state).enter(Charge(Kind.PREVIEW, Occasion("loans", ("shop",), "coordinator", "job", 1), 1, {}))
    clear = {path.name: path.read_bytes() for path in files_below(state) if path.name in ("ledger.jsonl", "000001.tap")}
    assert treetap_here("ledger", "--config", str(configured(tmp_path, **places))) == 2
    assert "is not encrypted" in capsys.readouterr().err
    with monkeypatch.context() as patched:
        patched.setattr(rotation, "write_whole", fill)
        assert treetap_here("state", "rotate", "--config", str(configured(tmp_path, **places))) == 2
    assert "ledger.jsonl: cannot be written: No space left" in capsys.readouterr().err
    assert treetap_here("state", "rotate", "--config", str(configured(tmp_path, **places))) == 0
    assert "2 files written" in capsys.readouterr().out
    assert treetap_here("ledger", "--config", str(configured(tmp_path, **places))) == 0
    assert "loans" in capsys.readouterr().out
    assert treetap_here("ledger", "--config", str(configured(tmp_path))) == 2
    assert "give the configuration of its party" in capsys.readouterr().err
    assert treetap_here("transcript", str(state / "transcripts" / "job")) == 2
    assert "treetap state export" in capsys.readouterr().err
    config = str(configured(tmp_path, **places))
    assert treetap_here("state", "export", str(tmp_path / "out"), "--config", config, "--transcripts", "job") == 0
    assert (tmp_path / "out" / "000001.tap").read_bytes() == clear["000001.tap"]
    assert treetap_here("transcript", str(tmp_path / "out")) == 0
    former = {"former_state_key": places["state_key"]}
    assert treetap_here("state", "rotate", "--config", str(configured(tmp_path, **former))) == 0
    assert {name: next(state.rglob(name)).read_bytes() for name in clear} == clear


@pytest.mark.second_tier
def test_a_party_does_not_start_without_its_key(tmp_path: Path) -> None:
    """Exit status 2, the key's id and the remedy in one line, and nothing is touched but the lock."""
    before = state_with(tmp_path / "state", OLD)
    ended = treetap("party", "--config", configured(tmp_path, workers=1))
    assert ended.status == 2
    assert f"is encrypted with state key {OLD.id.hex()}: give that key" in ended.err
    assert content_of(tmp_path / "state") == {**before, "lock": b""}
