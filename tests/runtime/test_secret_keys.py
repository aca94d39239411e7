"""The secret key of a job is in memory only: by its content it is in no file, at any moment, and in no message."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.replay import HERE, JOB, asked
from tests.runtime.stored_jobs import publish
from tests.simulator import Federation, Message
from tests.worlds import PARTIES
from treetap.additive.paillier.secret_key import SecretKey
from treetap.models.store import TREES
from treetap.party.runtime.job_store import Store
from treetap.wire.transcript import TranscriptReader

LABEL_HOLDER = PARTIES[0]
KEY = SecretKey.generate(1024)


def forms_of(secrets: Iterable[SecretKey]) -> list[bytes]:
    """The primes as programs usually write numbers; of each form the leading half, which gives the rest away too."""
    found = []
    for prime in (prime for secret in secrets for prime in (int(secret._p), int(secret._q))):
        size = (prime.bit_length() + 7) // 8
        whole = [prime.to_bytes(size, "big"), prime.to_bytes(size, "little")]
        whole += [str(prime).encode(), f"{prime:x}".encode(), f"{prime:X}".encode()]
        found += [form[: len(form) // 2] for form in whole]
    return found


def holding(folder: Path, forms: list[bytes]) -> list[Path]:
    """The files below a folder whose content has one of the forms."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if any(form in path.read_bytes() for form in forms)]


def test_files_with_a_key_are_found(tmp_path: Path) -> None:
    """The search by content finds each form, whatever the file is called."""
    assert len(forms_of([KEY])) == 10
    for form in forms_of([KEY]):
        (tmp_path / "any").write_bytes(b"before" + form + b"after")
        assert holding(tmp_path, forms_of([KEY])) == [tmp_path / "any"]


async def test_no_key_is_in_a_file_or_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained, killed and resumed, predicted by Fed-EINI: at no message is there a trace of any of the keys on a disk.

    A resumed job has a key of its own.
    """
    keys: list[SecretKey] = []
    generate = SecretKey.generate.__func__  # type: ignore[attr-defined]

    def remembered(cls: type[SecretKey], bits: int = 2048, allow_breakable: bool = False) -> SecretKey:
        keys.append(generate(cls, bits, allow_breakable))
        return keys[-1]

    monkeypatch.setattr(SecretKey, "generate", classmethod(remembered))
    looks = 0

    federation = Federation(tmp_path, HERE.tables, record="both")

    def look(message: Message) -> None:
        nonlocal looks
        if keys and message.number % 5 == 0:
            looks += 1
            assert holding(tmp_path, forms_of(keys)) == [], message
        if message.word == "relay_children" and len(keys) == 1:
            federation.restart(LABEL_HOLDER)

    federation.hook = look
    assert (await federation.train(JOB)).state == "interrupted"
    assert (await federation.resume()).state == "finished"
    assert len(keys) == 2
    assert (await federation.predict(asked("new"))).state == "finished"
    assert len(keys) == 3
    await federation.close()
    assert looks > 20
    assert holding(tmp_path, forms_of(keys)) == []
    for party in PARTIES:
        for job, secrets in (("job", keys[:2]), ("new", keys[2:])):
            log = TranscriptReader(tmp_path / party / "state" / "transcripts" / job)
            everything = b"".join(record.message for record in log)
            assert all(secret.public.to_bytes() in everything for secret in secrets)
            assert not any(form in everything for form in forms_of(secrets))


def test_a_model_has_no_file_but_its_own(tmp_path: Path) -> None:
    """Whatever lies beside the progress, under any name, does not travel with the model."""
    job = Store(tmp_path).job("job")
    job.claim("one", "d")
    for name in ("secret.json", ".secret.json.5f0c2d1e", "any", "manifest.json.part", "model"):
        job.path(name).write_text(hex(KEY._p))
    job.path("model").unlink()
    publish(job)
    assert sorted(path.name for path in job.model.iterdir()) == ["job.json", "manifest.json", TREES]
    assert holding(tmp_path, forms_of([KEY])) == []
