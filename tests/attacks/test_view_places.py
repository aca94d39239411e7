"""Where a transcript may lie, whose it is, and which of several is meant."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.attacks.recorded import knowledge, rewritten
from tests.worlds import PARTIES
from treetap.attacks.view.view import read_view
from treetap.errors import BadInput, Malformed
from treetap.wire.transcript import HEADER
from treetap.wire.v2 import exchange_pb2
from treetap.wire.v2.control_pb2 import StepRequest
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

FEATURE = PARTIES[1]
Records = list[TranscriptRecord]
pytestmark = [pytest.mark.filterwarnings("ignore:a 512-bit"), pytest.mark.xdist_group("places")]


def test_a_transcript_that_does_not_tell_whose_it_is(sound: Path, tmp_path: Path) -> None:
    """Of three parties, one that won no split and met the label holder only has to be named."""

    def no_splits(records: Records) -> Records:
        return [record for record in records if record.step not in ("won_splits", "own_split")]

    path = rewritten(sound, tmp_path / "log", no_splits)
    with pytest.raises(BadInput, match="does not say whose transcript it is; name one of feature-b, feature-c"):
        read_view(path)
    assert read_view(path, party=FEATURE).party == FEATURE


def test_several_jobs_in_one_folder(sound: Path, tmp_path: Path) -> None:
    """One job's transcript is found by its name in the party's state; without one, the jobs are named."""

    def renamed(records: Records) -> Records:
        for record in records:
            kind = exchange_pb2.PeerMessage if record.message_type.endswith("PeerMessage") else StepRequest
            if not record.message_type.endswith(("OwnSplit", "OwnAlignment")):
                message = kind.FromString(record.message)
                message.job = "second"
                record.message = message.SerializeToString()
            record.job = "second"
        return records

    state = tmp_path / "state"
    rewritten(sound, state / "transcripts" / "first", lambda records: records)
    assert read_view(state).job == read_view(state / "transcripts").job == "job"
    rewritten(sound, state / "transcripts" / "renamed", renamed)
    assert read_view(state, "second").job == "second"
    assert read_view(tmp_path, "job").path == state / "transcripts" / "first"
    with pytest.raises(BadInput, match=r"several jobs; choose one by name: job, second"):
        read_view(state)
    with pytest.raises(BadInput, match=r"no transcript of job 'third', only of: job, second"):
        read_view(state, "third")
    rewritten(sound, state / "transcripts" / "again", lambda records: records)
    with pytest.raises(
        BadInput, match=r"more than once; give one of these folders: transcripts/again, transcripts/first"
    ):
        read_view(state, "job")


@pytest.mark.parametrize("left", [[], [b""], [HEADER[:7]], [HEADER, HEADER + bytes(4)]])
def test_transcripts_that_were_only_begun(left: list[bytes], sound: Path, tmp_path: Path) -> None:
    """A party that was killed as it began other jobs' transcripts leaves folders without a record: no reason to ask."""
    rewritten(sound, tmp_path / "transcripts" / "first", lambda records: records)
    for job in ("begun", "other"):
        (tmp_path / "transcripts" / job).mkdir()
        for number, content in enumerate(left, start=1):
            (tmp_path / "transcripts" / job / f"{number:06}.tap").write_bytes(content)
    assert read_view(tmp_path).path == tmp_path / "transcripts" / "first"
    with pytest.raises(BadInput, match=r"holds no transcript of job 'begun', only of: job$"):
        read_view(tmp_path, "begun")


def test_a_transcript_sent_by_mail(sound: Path, tmp_path: Path) -> None:
    """One file; a tar or zip archive of the folder; damage in it is told by the archive's name."""
    expected = knowledge(read_view(sound))
    single = tmp_path / "theirs.tap"
    single.write_bytes((sound / "000001.tap").read_bytes())
    assert knowledge(read_view(single)) == expected
    packed, zipped = tmp_path / "theirs.tar.gz", tmp_path / "theirs.zip"
    with tarfile.open(packed, "w:gz") as tar:
        tar.add(sound, "transcripts/job")
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.write(single, "job/000001.tap")
        archive.writestr("job/readme.txt", "with my regards")
    for path, rows in ((packed, True), (zipped, False)):
        view = read_view(path)
        assert (view.rows is not None) == rows
        assert "treetap-transcript-" not in "".join(view.faults)
        assert knowledge(view) == expected
        assert view.path == path
    damaged = bytearray(single.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("job/000001.tap", bytes(damaged))
    with pytest.raises(Malformed, match=f"{zipped}/job/000001.tap: byte "):
        read_view(zipped)


def test_what_is_no_transcript(tmp_path: Path) -> None:
    """Nothing there, an empty folder, another file, an archive that leads elsewhere, a log without a record."""
    with pytest.raises(BadInput, match="there is no such file or folder"):
        read_view(tmp_path / "nothing")
    with pytest.raises(BadInput, match="holds no transcript"):
        read_view(tmp_path)
    (tmp_path / "letter.txt").write_text("dear auditor")
    with pytest.raises(BadInput, match=r"letter.txt: cannot be unpacked \(ReadError\)"):
        read_view(tmp_path / "letter.txt")
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../000001.tap", b"")
    with pytest.raises(BadInput, match="leads out of the archive"):
        read_view(tmp_path / "evil.zip")
    assert not (tmp_path / "000001.tap").exists()
    (tmp_path / "000001.tap").write_bytes(HEADER)
    with pytest.raises(BadInput, match="holds no record yet"):
        read_view(tmp_path / "000001.tap")
