"""Signed heads: what they show of a transcript, which changes they betray, and what is said where there are none."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.certificates import certified
from tests.commands.command import refused, treetap
from tests.library.wire.logs import RECEIVED, chained, files_of, record_ends
from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import Malformed
from treetap.ops.certs import requests
from treetap.wire.ports import Role
from treetap.wire.signatures import Anchor
from treetap.wire.tls import Insecure, TlsFiles, Transport
from treetap.wire.transcript import TranscriptReader, frames, opened, summarise
from treetap.wire.transcript import files_of as tap_files
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.transcript_pb2 import TranscriptHead, TranscriptRecord
from treetap.wire.v2.types_pb2 import NamedMetric

Records = list[TranscriptRecord]
HEAD = TranscriptRecord.HEAD


class Keys(NamedTuple):
    """An authority, and the files of two of its parties."""

    ca: Path
    party: TlsFiles
    other: TlsFiles


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    folder = tmp_path_factory.mktemp("certificates")
    return Keys(folder / "ca.crt", *certified(folder, "feature-b", "feature-c").values())


def _write(
    folder: Path, texts: Sequence[str], signer: Transport | None, *, kill: bool = False, rotate: int = 10**6
) -> None:
    writer = TranscriptWriter(folder, rotate, signer=signer)
    for text in texts:
        writer.append(RECEIVED, "peer", "step", "job", 1, 2, 3, NamedMetric(name=text))
    if kill:
        writer._unlock()  # as the system does
    else:
        writer.close()


def _anchor(path: Path, ca: Path | None = None, revoked: Path | None = None) -> Anchor:
    reader = TranscriptReader(path, ca, revoked)
    list(reader)
    return reader.anchor


def _signed_whole(found: Anchor) -> bool:
    """True if all of the transcript is signed, under the given authority."""
    return found.state == "signed" and found.verified


def _all(folder: Path) -> Records:
    """Every record, heads too."""
    found = []
    for _, path in sorted(tap_files(folder).items()):
        with opened(path) as file:
            found += [frame.open()[0] for frame in frames(path, file)]
    return found


def test_a_closed_log_is_signed_to_its_end(keys: Keys, tmp_path: Path) -> None:
    """By the party of the certificate; the records come without the head."""
    _write(tmp_path, "abc", keys.party)
    assert [record.kind for record in _all(tmp_path)] == [RECEIVED] * 3 + [HEAD]
    assert [record.sequence for record in TranscriptReader(tmp_path)] == [0, 1, 2]
    found = _anchor(tmp_path, keys.ca)
    assert (found.state, found.up_to, found.signer, found.verified) == ("signed", 2, "feature-b", True)
    alone = _anchor(tmp_path)
    assert (alone.state, alone.verified) == ("signed", False)
    assert "signed to the end by 'feature-b'" in str(alone)
    assert "not verified: no authority was given, see --ca" in str(alone)


def test_every_full_file_is_signed(keys: Keys, tmp_path: Path) -> None:
    """A head ends each file; of a killed process only the last file's records are unsigned, until the next head."""
    texts = [f"{number:0200}" for number in range(8)]
    _write(tmp_path, texts, keys.party, kill=True, rotate=600)
    files = files_of(tmp_path)
    assert len(files) > 2
    killed = _anchor(tmp_path, keys.ca)
    assert killed.state == "partly"
    assert killed.up_to is not None
    assert str(killed).endswith("the rest unsigned: the party's process was killed, is at work, or could not sign")
    for name in files[:-1]:
        assert _all_of(tmp_path / name)[-1].kind == HEAD
    assert _all_of(tmp_path / files[-1])[-1].kind == RECEIVED
    _write(tmp_path, ["after"], keys.party)
    assert _signed_whole(_anchor(tmp_path, keys.ca))
    assert [record.message[2:].decode() for record in TranscriptReader(tmp_path)][-1] == "after"


def _all_of(path: Path) -> Records:
    with opened(path) as file:
        return [frame.open()[0] for frame in frames(path, file)]


def test_nothing_new_is_not_signed_again(keys: Keys, tmp_path: Path) -> None:
    """Opening and closing adds a file and no head."""
    _write(tmp_path, "a", keys.party)
    _write(tmp_path, "", keys.party)
    assert [record.kind for record in _all(tmp_path)] == [RECEIVED, HEAD]
    assert _signed_whole(_anchor(tmp_path, keys.ca))


def _with(records: Records, place: int, **fields: object) -> Records:
    """The records, one of which has other fields."""
    for name, value in fields.items():
        setattr(records[place], name, value)
    return records


CHANGES: dict[str, Callable[[Records], Records]] = {
    "a message": lambda records: _with(records, 1, message=NamedMetric(name="forged").SerializeToString()),
    "a record less": lambda records: records[:1] + records[2:],
    "a record more": lambda records: [records[0], deepcopy(records[0]), *records[1:]],
    "another time": lambda records: _with(records, -1, unix_nanos=records[-1].unix_nanos + 1),
    "a broken signature": lambda records: _with(records, -1, message=records[-1].message[:-3] + b"abc"),
    "no certificate": lambda records: _with(records, -1, message=b"\x0a\x03abc\x12\x03abc"),
    "no head": lambda records: _with(records, -1, message=b"\x0a\xff"),
    "another type": lambda records: _with(records, -1, message_type="treetap.wire.v2.NamedMetric"),
    "the head first": lambda records: records[::-1],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_chain_computed_anew_does_not_fit_its_signature(
    change: Callable[[Records], Records], keys: Keys, tmp_path: Path
) -> None:
    """Without the party's key no signed record can be changed unseen, with or without the authority at hand."""
    _write(tmp_path, "abc", keys.party)
    chained(tmp_path, _all(tmp_path))
    assert _signed_whole(_anchor(tmp_path, keys.ca))
    chained(tmp_path, change(_all(tmp_path)))
    for ca in (None, keys.ca):
        with pytest.raises(Malformed, match=r"000001\.tap: byte \d+: record \d: "):
            _anchor(tmp_path, ca)


def test_an_end_that_was_cut_off_or_added_is_unsigned(keys: Keys, tmp_path: Path) -> None:
    """Records after the last head count as unsigned."""
    _write(tmp_path, "ab", keys.party)
    _write(tmp_path, "c", None)
    assert (_anchor(tmp_path, keys.ca).state, _anchor(tmp_path, keys.ca).up_to) == ("partly", 1)


def test_a_head_without_a_signature_changes_no_digest_that_is_signed(keys: Keys, tmp_path: Path) -> None:
    """Anyone can put one behind what is signed, or before."""
    with TranscriptWriter(tmp_path, signer=keys.party) as writer:
        writer.job_digest = b"\x11" * 32
        writer.append(RECEIVED, "peer", "step", "job", 1, 2, 3, NamedMetric(name="a"))
    forged = TranscriptHead(job_digest=b"\xee" * 32)
    record = TranscriptRecord(kind=HEAD, step="head", job="job", message_type=forged.DESCRIPTOR.full_name)
    record.message = forged.SerializeToString()
    signed = _all(tmp_path)
    chained(tmp_path, [*signed, record])
    assert (_anchor(tmp_path, keys.ca).state, _anchor(tmp_path, keys.ca).job_digest) == ("signed", "11" * 32)


def test_a_stranger_s_signature_is_refused(keys: Keys, tmp_path: Path) -> None:
    """A key of another federation, and another party's of the same, for the records that the party had signed."""
    strange = tmp_path / "strange"
    strange.mkdir()
    create_authority(strange)
    _write(tmp_path / "log", "a", issue(strange, "feature-b", Role.PARTY))
    assert _anchor(tmp_path / "log").state == "signed"
    with pytest.raises(Malformed, match="was not issued by the given authority: the signature was changed"):
        _anchor(tmp_path / "log", keys.ca)
    _write(tmp_path / "two", "a", keys.party)
    _write(tmp_path / "two", "b", keys.other)
    with pytest.raises(Malformed, match="is signed by 'feature-c', those before it by 'feature-b'"):
        _anchor(tmp_path / "two")


def test_only_a_party_signs(keys: Keys, tmp_path: Path) -> None:
    """The certificate of an operator or of the coordinator is valid, and signs no transcript."""
    files = issue(tmp_path, "operator", Role.OPERATOR, ca_folder=keys.ca.parent)
    _write(tmp_path / "log", "a", files)
    with pytest.raises(Malformed, match="its signature is that of operator 'operator', not of a party"):
        _anchor(tmp_path / "log", keys.ca)


def test_signatures_outlive_certificates(keys: Keys, tmp_path: Path) -> None:
    """They are verified as of their own time, not of today; one made before or after its certificate is refused."""
    now, day = time.time_ns(), int(timedelta(days=1).total_seconds() * 10**9)
    for days, fits in ((-1, False), (0, True), (300, True), (400, False), (4000, False)):
        folder = tmp_path / str(days)
        with TranscriptWriter(folder, clock=lambda moment=now + days * day: moment, signer=keys.party) as log:
            log.append(RECEIVED, "peer", "step", "job", 1, 2, 3, NamedMetric(name="a"))
        if fits:
            assert _signed_whole(_anchor(folder, keys.ca))
        else:
            with pytest.raises(Malformed, match="was not valid at the time of the signature"):
                _anchor(folder, keys.ca)


def _written(folder: Path, files: TlsFiles, after: timedelta) -> Path:
    """A log that is signed so long after now, by its party's clock."""
    moment = time.time_ns() + int(after.total_seconds()) * 10**9
    with TranscriptWriter(folder, clock=lambda: moment, signer=files) as log:
        log.append(RECEIVED, "peer", "step", "job", 1, 2, 3, NamedMetric(name="a"))
    return folder


def test_a_revoked_certificate_signs_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signature after the revocation is a fault, one before it stands, and that is said; a list may have ended."""
    stolen, other = certified(tmp_path, "feature-b", "feature-c").values()
    before, after = (_written(tmp_path / str(at), stolen, timedelta(minutes=at)) for at in (-2, 2))
    rightful = _written(tmp_path / "other", other, timedelta(minutes=2))
    for ended in (False, True):
        if ended:
            past = datetime.now(UTC) - timedelta(minutes=1)
            monkeypatch.setattr(requests, "last_day", lambda days, past=past: past)
        path, _, _ = requests.revoke(tmp_path, () if ended else ["feature-b"])
        when = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
        with pytest.raises(Malformed, match=rf"its certificate was revoked on {when}, before the signature \({when}\)"):
            _anchor(after, stolen.ca, path)
        assert re.search(
            rf"of the given authority, revoked on {when}, after the signature\)", str(_anchor(before, stolen.ca, path))
        )
        assert _signed_whole(_anchor(before, stolen.ca, path))
        assert str(_anchor(rightful, stolen.ca, path)).endswith("of the given authority, not revoked)")
    assert str(_anchor(after, stolen.ca)).endswith("of the given authority)")  # nothing was looked up


def test_a_list_of_revoked_certificates_is_verified(keys: Keys, tmp_path: Path) -> None:
    """It must be the given authority's, which must be given."""
    _write(tmp_path / "log", "a", keys.party)
    create_authority(tmp_path)
    path, _, _ = requests.revoke(tmp_path)
    line = refused(treetap("transcript", tmp_path / "log", "--ca", keys.ca, "--revoked", path))
    assert "has no list of revoked certificates of the authority 'CN=treetap CA' that is trusted here" in line
    alone = refused(treetap("transcript", tmp_path / "log", "--revoked", path))
    assert alone == f"{path}: a list of revoked certificates is verified by its authority: give --ca too\n"
    path, _, _ = requests.revoke(keys.ca.parent, ["feature-c"])
    found = json.loads(treetap("transcript", tmp_path / "log", "--ca", keys.ca, "--revoked", path, "--json").out)
    assert (found["signed"]["listed"], found["signed"]["revoked"]) == (True, "")


def test_a_renewed_certificate_signs_the_next_head(tmp_path: Path) -> None:
    """Files are read anew for each head; one signs nothing while its key does not belong to its certificate."""
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    files = certified(certificates, "feature-b")["feature-b"]
    folder = tmp_path / "log"
    first = files.certificate.read_bytes()
    with TranscriptWriter(folder, signer=files) as writer:
        writer.append(RECEIVED, "peer", "step", "job", 1, 2, 3, NamedMetric(name="a"))
        files.certificate.unlink()
        files.key.unlink()
        issue(certificates, "feature-b", Role.PARTY)
    assert _signed_whole(_anchor(folder, certificates / "ca.crt"))
    files.certificate.write_bytes(first)
    _write(folder, "b", files)
    assert _anchor(folder, certificates / "ca.crt").state == "partly"


def test_a_key_that_fails_is_logged(keys: Keys, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The record is kept, unsigned; the job goes on."""
    gone = TlsFiles(keys.ca, keys.party.certificate, tmp_path / "gone.key")
    with caplog.at_level(logging.WARNING):
        _write(tmp_path / "log", "a", gone)
    assert "the transcript is not signed up to here" in caplog.text
    assert str(_anchor(tmp_path / "log")).startswith("not signed: the party's process was killed")


def test_what_is_not_signed_is_said(keys: Keys, tmp_path: Path) -> None:
    """Plain text, a killed process, no record: each has its own state, with status 0."""
    _write(tmp_path / "plain", "a", Insecure("a"))
    _write(tmp_path / "killed", "a", keys.party, kill=True)
    _write(tmp_path / "empty", "", keys.party)
    said = {
        "plain": "not signed: the federation was in plain text",
        "killed": "not signed: the party's process was killed, is at work, or could not sign",
        "empty": "no record",
    }
    for name, sentence in said.items():
        assert summarise(tmp_path / name)["signed"]["says"] == sentence
    outcome = treetap("transcript", tmp_path / "plain")
    assert outcome.status == 0
    assert said["plain"] in outcome.out


def test_the_command_verifies_under_the_authority(keys: Keys, tmp_path: Path) -> None:
    """`treetap transcript --ca`: in words and as JSON; a wrong file of the authority is an error."""
    _write(tmp_path, "abc", keys.party)
    outcome = treetap("transcript", tmp_path, "--ca", keys.ca)
    assert outcome.status == 0
    assert "signed to the end by 'feature-b'" in outcome.out
    found = json.loads(treetap("transcript", tmp_path, "--ca", keys.ca, "--json").out)["signed"]
    assert (found["state"], found["up_to"], found["verified"]) == ("signed", 2, True)
    absent = tmp_path / "none"
    assert refused(treetap("transcript", tmp_path, "--ca", absent)) == f"{absent}: there is no such file\n"
    chained(tmp_path, CHANGES["a record less"](_all(tmp_path)))
    assert "its signature does not fit the records before it" in refused(treetap("transcript", tmp_path))


def test_a_cut_file_still_begins_the_chain(keys: Keys, tmp_path: Path) -> None:
    """The end of a signed file cut within its head: torn, and unsigned from the head before it on."""
    _write(tmp_path, "ab", keys.party)
    path = tmp_path / "000001.tap"
    content = path.read_bytes()
    path.write_bytes(content[: record_ends(content)[-1] - 5])
    reader = TranscriptReader(tmp_path, keys.ca)
    assert len(list(reader)) == 2
    assert reader.torn
    assert reader.anchor.state == "unsigned"
