"""Transcripts that were changed, cut or mixed are refused or reported, never used in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.present import present
from tests.attacks.recorded import Change, Records, changed, filled, knowledge, repeated, rewritten, with_rows
from tests.library.wire.logs import chained, record_ends
from tests.worlds import PARTIES
from treetap.attacks.view.view import read_view
from treetap.errors import BadInput, Malformed
from treetap.wire.own_rows import OwnRows
from treetap.wire.transcript import HEADER, TranscriptReader
from treetap.wire.v2 import exchange_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

FEATURE = PARTIES[1]
pytestmark = [pytest.mark.filterwarnings("ignore:a 512-bit"), pytest.mark.xdist_group("tampered")]


def _in_two_files(sound: Path, folder: Path) -> tuple[Path, Path]:
    """The same records, rotated in the middle."""
    folder.mkdir()
    content = (sound / "000001.tap").read_bytes()
    ends = record_ends(content)
    cut = ends[len(ends) // 2]
    (folder / "000001.tap").write_bytes(content[:cut])
    (folder / "000002.tap").write_bytes(HEADER + content[cut:])
    return folder / "000001.tap", folder / "000002.tap"


def test_two_files_are_read_as_one(sound: Path, tmp_path: Path) -> None:
    """Rotation changes nothing."""
    _in_two_files(sound, tmp_path / "log")
    assert knowledge(read_view(tmp_path / "log")) == knowledge(read_view(sound))


def test_a_flipped_byte_is_refused(sound: Path, tmp_path: Path) -> None:
    """Anywhere in the file, with file and byte."""
    first, _ = _in_two_files(sound, tmp_path / "log")
    content = first.read_bytes()
    for place in (len(HEADER) + 9, len(content) // 2, len(content) - 3):
        first.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        with pytest.raises(Malformed, match=f"{first}: byte "):
            read_view(tmp_path / "log")


def test_a_cut_in_the_middle_and_a_missing_file_are_refused(sound: Path, tmp_path: Path) -> None:
    """Records or a whole rotation taken out."""
    first, second = _in_two_files(sound, tmp_path / "log")
    whole = second.read_bytes()
    ends = record_ends(whole)
    second.write_bytes(whole[: ends[0]] + whole[ends[1] :])
    with pytest.raises(Malformed, match="does not follow record"):
        read_view(tmp_path / "log")
    second.write_bytes(whole)
    first.unlink()
    with pytest.raises(Malformed, match=r"the file 000001.tap before it is missing"):
        read_view(tmp_path / "log")
    with pytest.raises(BadInput, match="the transcript's files before it are missing; give the whole folder"):
        read_view(second)


def test_a_missing_end_is_reported(sound: Path, tmp_path: Path) -> None:
    """Records missing at the very end cannot show in the chain; that the job's end is not there does, and is said."""
    first, second = _in_two_files(sound, tmp_path / "log")
    for path in (tmp_path / "log", first):
        second.unlink(missing_ok=True)
        view = read_view(path)
        assert not view.finished
        assert len(view.trees) < 2
        assert any("ends before its job does" in fault for fault in view.faults)


def test_a_torn_end_is_reported(sound: Path, tmp_path: Path) -> None:
    """Half a record at the end is left out, and said; what was before it counts."""
    first, _ = _in_two_files(sound, tmp_path / "log")
    first.write_bytes(first.read_bytes()[:-5])
    view = read_view(first)
    assert any("a record was cut short" in fault for fault in view.faults)
    assert all(str(first) in fault for fault in view.faults)


def _another_set(records: Records) -> Records:
    spaces = [record for record in records if record.step == "instance_spaces"]
    place = next(record for record in spaces if record.stage == 2)
    other = next(record for record in spaces if record.round != place.round and record.stage == 1)
    parcel, sent = (exchange_pb2.PeerMessage.FromString(record.message) for record in (place, other))
    parcel.growth.instance_spaces.spaces[0].records.CopyFrom(sent.growth.instance_spaces.spaces[0].records)
    place.message = parcel.SerializeToString()
    return records


def _longer(parcel: exchange_pb2.PeerMessage) -> None:
    parcel.growth.sampled_records.chunks[-1].span += 1


def _depth(depth: int) -> Callable[[Any], None]:
    return filled(setup__prepare__spec__parameters__boosting__trees__max_depth=depth)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        # a job that is said to be published
        (changed("bin", step="publish"), "its message is a treetap.wire.v2.StepRequest for bin, which is no publish"),
        (
            changed("instance_spaces", kind=TranscriptRecord.OWN),
            "its message is a treetap.wire.v2.PeerMessage, which is not recorded so",
        ),
        (
            changed("prepare", kind=TranscriptRecord.SENT),
            "its message is a treetap.wire.v2.StepRequest, which is not recorded so",
        ),
        # the last part of a series that is said to have four thousand million
        (
            changed("instance_spaces", filled(part=2**32 - 1, last=True)),
            "messages of the instance_spaces that label-holder sent for stage 1 are missing",
        ),
        (changed("own_split", filled(node=2**63)), "node 9223372036854775808 is deeper than the job's trees"),
        (changed("prepare", _depth(4_000_000_000)), "the job that it records is none"),
        (changed("publish", job="other"), "it is of job 'other', those before it are of job 'job'"),
        (changed("instance_spaces", filled(job="other")), "its message is of job 'other'"),
        (changed("instance_spaces", attempt=2), "its message is of job 'job', attempt 1"),
        (
            changed("won_splits", filled(growth__won_splits__owner=PARTIES[2]), -1),
            "holds records of several parties: feature-b, feature-c",
        ),
        (changed("leaf_paths", peer=FEATURE), "holds records of several parties"),  # a parcel of oneself
        (_another_set, r"tree 0, attempt 1: node"),
        (
            repeated("instance_spaces", lambda it: it.growth.instance_spaces.ClearField("spaces")),
            "instance_spaces: part 0 came twice with different content",
        ),
        (
            changed("instance_spaces", filled(part=1, last=True)),
            "messages of the instance_spaces that label-holder sent for stage 1 are missing",
        ),
        (changed("sampled_records", _longer), "its sets are of 60 and of 61 records"),
        (repeated("sampled_records", peer=PARTIES[2]), "the sample was sent twice"),
        (repeated("own_split", filled(threshold=1e9)), "was split twice"),
        (repeated("prepare", _depth(5)), "the job is another one than before"),
        (
            changed("own_split", step="own_alignment"),
            "its message is a treetap.wire.v2.OwnSplit for own_split, which is no own_alignment",
        ),
    ],
)
def test_what_a_sound_chain_does_not_excuse(change: Change, fault: str, sound: Path, tmp_path: Path) -> None:
    """Whoever writes a whole chain anew still has to make its records agree with each other."""
    unchanged = rewritten(sound, tmp_path / "unchanged", lambda records: records)
    assert knowledge(read_view(unchanged)) == knowledge(read_view(sound))
    with pytest.raises(Malformed, match=fault):
        read_view(rewritten(sound, tmp_path / "changed", change))


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (None, "a row of the party's table is aligned as two records"),
        (2**63 - 1, "a row of the party's table is beyond any table"),
    ],
)
def test_rows_that_no_alignment_gives(row: int | None, fault: str, sound: Path, tmp_path: Path) -> None:
    """A sound digest of rows does not excuse them either; None: the row of another record."""
    with pytest.raises(Malformed, match=fault):
        read_view(with_rows(sound, tmp_path / "changed", lambda rows: rows.__setitem__(0, row or rows[1])))


def test_forgotten_missing_and_changed_rows(sound: Path, tmp_path: Path) -> None:
    """The view goes on without a forgotten record; a missing file is named, and one that was changed refused."""
    whole, (file,) = read_view(sound), sound.glob("*.own")
    own, at = OwnRows.read(file), rewritten(sound, tmp_path / "log", lambda records: records) / file.name
    gone = np.arange(len(own.rows)) == 4
    own.without(gone).write(at)
    view = read_view(at.parent)
    assert (view.records, present(view.rows).tolist()) == (59, present(whole.rows)[~gone].tolist())
    assert view.faults == (f"{at.parent}: 1 of the 60 common records were forgotten: their rows are gone",)
    places = np.flatnonzero(~gone)
    for before, after in zip(whole.trees, view.trees, strict=True):
        assert {u: [r for r in it.records.tolist() if r != 4] for u, it in before.nodes.items()} == {
            u: places[it.records].tolist() for u, it in after.nodes.items()
        }
    content = file.read_bytes()
    at.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(Malformed, match="was changed: it is not what the transcript has the digest of"):
        read_view(at.parent)
    at.unlink()
    assert read_view(at.parent).rows is None
    assert f"{at.name}, which says which rows the common records are, cannot" in read_view(at.parent).faults[0]


def test_a_sample_with_replacement_tells_how_often(sound: Path, tmp_path: Path) -> None:
    """A forest's draw comes as nested sets, at least once, at least twice; each record counts as often as named."""

    def bootstrap(parcel: exchange_pb2.PeerMessage) -> None:
        del parcel.growth.sampled_records.chunks[:]
        for drawn in ([0, 1, 5], [5]):
            bits = sum(1 << record for record in drawn).to_bytes(8, "little")
            parcel.growth.sampled_records.chunks.add(start=0, span=60, bitmap=bits)

    assert read_view(sound).trees[0].drawn is not None
    drawn = present(read_view(rewritten(sound, tmp_path / "log", changed("sampled_records", bootstrap))).trees[0].drawn)
    assert drawn[:7].tolist() == [1, 1, 0, 0, 0, 2, 0]
    assert drawn.sum() == 4


def test_a_second_submission_of_the_name_counts_alone(sound: Path, tmp_path: Path) -> None:
    """A cancelled job whose name was used again: only the last submission is in the view, and that is said."""

    def twice(records: Records) -> Records:
        second = [TranscriptRecord.FromString(record.SerializeToString()) for record in records]
        trees = {"setup__prepare__spec__parameters__boosting__trees__n_estimators": 7}
        changed("prepare", filled(setup__prepare__submission="another", **trees))(second)
        first = [record for record in records if record.step != "publish"]
        return [*first, *(record for record in second if record.round == 0)]

    view = read_view(rewritten(sound, tmp_path / "log", twice))
    assert knowledge(view) == knowledge(read_view(sound))[:1]
    assert any("submitted more than once" in fault for fault in view.faults)


def test_recording_that_began_late_is_reported(sound: Path, tmp_path: Path) -> None:
    """Trees of which nothing was recorded are named; so is that nobody said which rows the records are."""

    def late(records: Records) -> Records:
        return [record for record in records if record.round == 1 or record.step in ("prepare", "publish")]

    view = read_view(rewritten(sound, tmp_path / "log", late))
    assert knowledge(view) == knowledge(read_view(sound))[1:]
    assert view.rows is None
    assert [part in "\n".join(view.faults) for part in ("trees 0 are not in", "does not say which rows")] == [
        True,
        True,
    ]


@pytest.mark.parametrize("total", [2**62, 10**10])
def test_a_set_of_more_records_than_fit_is_refused(total: int, sound: Path, tmp_path: Path) -> None:
    """A few bytes can name a set of any size; no memory is taken for it."""

    def huge(records: Records) -> Records:
        for record in records:
            if record.step in ("sampled_records", "instance_spaces"):
                message = exchange_pb2.PeerMessage.FromString(record.message)
                for chunks in (
                    message.growth.sampled_records.chunks,
                    *[[space.records] for space in message.growth.instance_spaces.spaces],
                ):
                    for chunk in chunks:
                        chunk.span, chunk.deltas = total, b"\x01"
                record.message = message.SerializeToString()
        return [record for record in records if record.step not in ("own_split", "own_alignment")]

    with pytest.raises(BadInput, match=f"its sets are of {total} records, too many for this machine's memory"):
        read_view(rewritten(sound, tmp_path / "log", huge), party=FEATURE)


def test_what_is_kept_of_a_transcript_fits_its_room(sound: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages and sets are counted while they are read, and the first that does not fit ends the reading."""
    said: dict[int, str] = {}
    monkeypatch.setattr("treetap.attacks.view.kept_messages._SETS", 0)
    for limit in range(0, 20_000, 250):
        monkeypatch.setattr("treetap.attacks.view.kept_messages.half_of_memory", lambda limit=limit: limit)
        try:
            read_view(sound)
        except BadInput as fault:
            said[limit] = str(fault)
    assert list(said) == list(range(0, max(said) + 1, 250))
    assert all(text.startswith(f"{sound}: ") for text in said.values())
    assert all("half of this machine's memory" in text for text in said.values())
    assert ": record " in said[0]  # a message
    assert ": record " not in said[max(said)]  # a set that follows from others


def test_bytes_by_class_are_not_believed(sound: Path, tmp_path: Path) -> None:
    """A transcript that says other bytes or classes than its messages have, in a chain of its own."""
    for classes in ({"CONTROL": 10**9}, {"NONSENSE": 1}, {}):
        folder = tmp_path / str(len(str(classes)))
        folder.mkdir()
        records = list(TranscriptReader(sound))
        place = next(i for i, record in enumerate(records) if record.step == "instance_spaces")
        records[place].bytes_by_class.clear()
        records[place].bytes_by_class.update(classes)
        chained(folder, records)
        with pytest.raises(Malformed, match=f"{folder}: record {place}: .*its bytes by class are not those of its"):
            read_view(folder)
