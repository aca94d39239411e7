"""Keys in a PKCS#11 token: the authority's, and those that sign documents; no message shows a PIN."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial, partialmethod
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from typer.testing import CliRunner

from party.runtime.transcript_recorder import Recorders
from tests.approvals.people import MANUAL, B, approve, begin, certify, waiting
from tests.campaign.small_jobs import play, wrong
from tests.needs import token_module
from tests.simulator import run
from treetap.commands.certs.authority import create_authority, issue, sign
from treetap.commands.certs.cli import certs
from treetap.commands.certs.requests import sign_request
from treetap.commands.certs.revocation import revoke
from treetap.commands.doctor.connections import check_certificate
from treetap.errors import ConfigError, Malformed
from treetap.process.config import Process, SigningConfig, TokenConfig
from treetap.process.secret import Secret
from treetap.strict import load
from treetap.wire import tokens
from treetap.wire.certificates import fingerprint, read_key
from treetap.wire.ends import ends
from treetap.wire.roles import Identity, Role
from treetap.wire.signatures import signed, verified
from treetap.wire.signed_heads import signer_of
from treetap.wire.tls import TlsFiles
from treetap.wire.tokens import Token
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2.types_pb2 import Signed

pytestmark = pytest.mark.second_tier
PIN = "canary-5309"
BANK = Identity("bank", Role.PARTY)


@dataclass(frozen=True)
class Hsm:
    """SoftHSM with a token `treetap`."""

    module: Path

    def keys(self, name: str, pin: str = PIN) -> str:
        """A key's table in a file."""
        place = f'{{ command = ["echo", "{pin}"] }}'
        return f'uri = "pkcs11:token=treetap;object={name}"\nmodule = "{self.module}"\npin = {place}\n'

    def token(self, name: str, **other: Any) -> Token:
        """A key, or one that differs from it."""
        config = TokenConfig(uri=f"pkcs11:token=treetap;object={name}", module=self.module)
        return replace(config.token("f.toml"), **{"pin": Secret(command=("echo", PIN)), **other})

    def attribute(self, name: str, attribute: str) -> Any:
        """An attribute of a private key."""
        import pkcs11

        def read(session: Any) -> Any:
            kind = {pkcs11.Attribute.CLASS: pkcs11.ObjectClass.PRIVATE_KEY, pkcs11.Attribute.LABEL: name}
            (key,) = session.get_objects(kind)
            return key[pkcs11.Attribute[attribute]]

        return self.token(name)._within(read)


@pytest.fixture(scope="module")
def hsm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hsm]:
    """A token; SoftHSM reads the variable when it is loaded, so that each process has one folder for all its tests."""
    module, folder = token_module(), tmp_path_factory.mktemp("hsm")
    (folder / "conf").write_text(f"directories.tokendir = {folder}\nobjectstore.backend = file\nlog.level = ERROR\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SOFTHSM2_CONF", str(folder / "conf"))
        words = ["--free", "--label", "treetap", "--pin", PIN, "--so-pin", "officer-1"]
        subprocess.run(["softhsm2-util", "--init-token", *words], check=True, capture_output=True, timeout=60)
        yield Hsm(module)


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No PIN has been refused yet."""
    monkeypatch.setattr(tokens, "_REFUSED", {})


def _fault(token: Token) -> str:
    """The error of a key, which names its file and shows no PIN."""
    with pytest.raises(ConfigError) as caught:
        token.key_pair()
    assert str(caught.value).startswith("f.toml: ")
    assert "canary" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("rsa", [False, True], ids=["made by init", "RSA, made by the token's tool"])
def test_an_authority_signs_by_its_token(hsm: Hsm, tmp_path: Path, rsa: bool) -> None:
    """Certificates and lists of an authority whose folder has no key are as those of another."""
    import pkcs11

    name = f"ca-{rsa}"
    if rsa:
        make = {"label": name, "store": True}
        hsm.token(name)._within(lambda session: session.generate_keypair(pkcs11.KeyType.RSA, 2048, **make), rw=True)
    (tmp_path / "authority.toml").write_text(f"[token]\n{hsm.keys(name)}")
    made = CliRunner().invoke(certs, ["init", str(tmp_path)], catch_exceptions=False)
    assert f"pkcs11:token=treetap;object={name}: keep it" in made.stdout
    assert not (tmp_path / "ca.key").exists()
    assert not hsm.attribute(name, "EXTRACTABLE")
    files = replace(issue(tmp_path, "bank", Role.PARTY), revoked=tmp_path / "crl.pem")
    assert files.inspect("bank", Role.PARTY) == "bank"
    revoke(tmp_path, ["bank"])
    with pytest.raises(ConfigError, match="revoked"):
        files.inspect("bank", Role.PARTY)


def test_a_refused_pin_is_tried_once(hsm: Hsm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token locks after a few wrong PINs: the second try does not reach it, for whatever key; a new PIN does."""
    hsm.token("mine").key_pair()
    wrong = Secret(command=("echo", "canary-5310"))
    assert "pin: the token refuses it" in _fault(hsm.token("mine", pin=wrong))
    chosen = Token._chosen

    def closed(self: Token, known: list[Any], more: int = 0) -> SimpleNamespace:
        """The token without a way to log in."""
        token = chosen(self, known)
        return SimpleNamespace(serial=token.serial, flags=token.flags | more)

    with monkeypatch.context() as patched:
        patched.setattr(Token, "_chosen", closed)
        assert "pin: the token refuses it" in _fault(hsm.token("other", pin=wrong))
        patched.setattr(Token, "_chosen", partialmethod(closed, more=0x20000))  # CKF_USER_PIN_FINAL_TRY
        assert "would lock after one more wrong one" in _fault(hsm.token("mine"))
    hsm.token("mine").key_pair()


def test_faults_of_tokens_name_their_field(hsm: Hsm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing PIN, library, module, token or key, and another key than the certificate's, are told in one line."""
    assert "pin: is missing" in _fault(hsm.token("mine", pin=None))
    assert "module: /gone.so: no such file" in _fault(hsm.token("mine", module=Path("/gone.so")))
    (other := tmp_path / "other.so").write_bytes(b"no library")
    assert f"module: {other} cannot be loaded" in _fault(hsm.token("mine", module=other))
    assert "has 0 such tokens" in _fault(hsm.token("mine", uri="pkcs11:token=gone;object=mine"))
    public = hsm.token("mine").key_pair().public_key()
    with pytest.raises(ConfigError, match="uri: the token has 0 such keys"):
        hsm.token("gone").key(public).try_out()
    hsm.token("second").key_pair()
    with pytest.raises(ConfigError, match="uri: the key is not that of the certificate"):
        hsm.token("second").key(public).try_out()
    monkeypatch.setitem(sys.modules, "pkcs11", None)
    assert "needs python-pkcs11" in _fault(hsm.token("mine"))


def test_a_module_that_hangs_is_left(hsm: Hsm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network's token may never answer: the process goes on, and the next call waits no longer."""
    end, done = Event(), Event()

    def hang(*_: object, **__: object) -> None:
        end.wait(60)
        done.set()

    with monkeypatch.context() as patched:
        patched.setattr(tokens, "WITHIN_S", 0.05)
        patched.setattr(Token, "_session", hang)
        for _ in range(2):
            assert "took longer than 0.05 s" in _fault(hsm.token("mine"))
    end.set()
    assert done.wait(60)
    hsm.token("mine").key_pair()


def test_a_second_certificate_signs_documents(hsm: Hsm, tmp_path: Path) -> None:
    """A party's documents are signed in the token; others verify them by the certificate that goes with each."""
    create_authority(tmp_path)
    revoke(tmp_path)
    plain = replace(issue(tmp_path, "bank", Role.PARTY), revoked=tmp_path / "crl.pem")
    paths = "".join(f'{key} = "{getattr(plain, key)}"\n' for key in ("ca", "certificate", "key", "revoked"))
    (own := tmp_path / "bank.toml").write_text(
        f'name = "bank"\n[tls]\n{paths}[tls.signing]\ncertificate = "signing/bank.crt"\n{hsm.keys("bank")}'
    )
    words = ["request", "bank", "--role", "party", "--signing", str(own), "--out", str(tmp_path / "signing")]
    assert CliRunner().invoke(certs, words, catch_exceptions=False).exit_code == 0
    certificate, _ = sign_request(tmp_path / "signing" / "bank.csr", BANK, tmp_path)
    config = load(own, Process)
    files = config.model_copy(update={"tls": config.tls_below(tmp_path)}).transport()
    assert isinstance(files, TlsFiles)
    assert files.check("bank", Role.PARTY) == "bank"
    findings = check_certificate(files, BANK)
    assert [(one.level, one.subject) for one in findings if one.subject == "signing"] == [("ok", "signing")]
    assert set(ends(files)) == {"own", "authority", "revoked", "signing"}
    assert ends(files)["signing"]() == pytest.approx(time.time() + 365 * 86400, abs=600)
    made = signed(files, b"document", "document", time.time_ns())
    assert x509.load_der_x509_certificate(made.certificate) == x509.load_pem_x509_certificate(certificate.read_bytes())
    assert verified(plain, made, b"document", Role.PARTY, new=True)[0] == "bank"
    revoke(tmp_path, [str(certificate)])
    assert plain.inspect("bank", Role.PARTY) == "bank"
    later = signed(files, b"document", "document", time.time_ns() + 2 * 10**9)  # lists have whole seconds
    with pytest.raises(Malformed, match="revoked"):
        verified(plain, later, b"document", Role.PARTY)
    with pytest.raises(ConfigError, match=r"signing/bank\.crt: .*revoked"):
        files.check("bank", Role.PARTY)


def test_only_who_signs_documents_has_a_key_for_them(hsm: Hsm, tmp_path: Path) -> None:
    """The second certificate must be of the same process, and a coordinator signs nothing."""
    create_authority(tmp_path)
    bank, desk = issue(tmp_path, "bank", Role.PARTY), issue(tmp_path, "desk", Role.COORDINATOR)
    config = SigningConfig(uri="pkcs11:token=treetap;object=x", module=hsm.module, certificate=desk.certificate)
    tls = Process.model_validate({"name": "bank", "tls": {"ca": "a", "certificate": "b", "key": "c"}}).tls
    assert tls is not None
    second = sign(tmp_path, Identity("desk", Role.COORDINATOR), read_key(desk.key).public_key(), (), 9, documents=True)  # type: ignore[arg-type]
    (tmp_path / "second.crt").write_bytes(second.public_bytes(Encoding.PEM))
    signing = tls.model_copy(update={"signing": config}).files().signing
    assert signing is not None
    with pytest.raises(ConfigError, match=r"desk\.crt: the certificate is that of 'desk', not of 'bank'"):
        replace(bank, signing=signing).check("bank", Role.PARTY)
    with pytest.raises(ConfigError, match="coordinator 'desk' signs no documents"):
        replace(desk, signing=replace(signing, certificate=tmp_path / "second.crt")).check("desk", Role.COORDINATOR)
    with pytest.raises(ConfigError, match=r"desk\.crt: .* must be documentSigning alone"):
        replace(desk, signing=signing).check("desk", Role.COORDINATOR)


@pytest.mark.parametrize(
    "uri",
    [
        "pkcs11:token=a;object=b?pin-value=canary",
        "pkcs11:token=a;object=b;pin=canary",
        "pkcs11:token=a",
        "pkcs11:object=b",
        "pkcs11:token=a;object=b;object=c",
        "pkcs11:token=a;object=b;type=public",
        "token=a;object=b",
    ],
)
def test_a_uri_names_one_key_and_no_pin(tmp_path: Path, uri: str) -> None:
    """A URI with a PIN, or without a token and a key, is refused, and its PIN is not shown."""
    (path := tmp_path / "authority.toml").write_text(f'uri = "{uri}"\nmodule = "m.so"\n')
    with pytest.raises(ConfigError, match="uri: ") as caught:
        load(path, TokenConfig)
    assert "canary" not in str(caught.value)


def test_a_token_signs_all_that_a_party_signs_in_a_job(
    hsm: Hsm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its people's approval and its transcript: its `key` signs none."""
    certificates = certify(tmp_path / "ca")
    public = hsm.token(B).key_pair().public_key()
    second = sign(tmp_path / "ca", Identity(B, Role.PARTY), public, (), 9, documents=True)
    (tmp_path / "b.crt").write_bytes(second.public_bytes(Encoding.PEM))

    async def main() -> None:
        federation = begin(tmp_path, "boosting", certificates, {B: MANUAL})
        config = federation.configs[B]
        assert config.tls is not None
        uri, pin = f"pkcs11:token=treetap;object={B}", Secret(command=("echo", PIN))
        signing = SigningConfig(uri=uri, module=hsm.module, pin=pin, certificate=tmp_path / "b.crt")
        federation.configs[B] = config.model_copy(update={"tls": config.tls.model_copy(update={"signing": signing})})
        signer = signer_of(federation.configs[B].transport())
        monkeypatch.setattr("tests.simulator.Recorders", partial(Recorders, signer=signer))
        federation.kill(B)
        federation.start(B)
        playing = asyncio.ensure_future(play(federation, "boosting"))
        await waiting(federation, "job", B)
        (approved,) = approve(federation, B).verdicts
        assert (await playing).state == "finished"
        assert wrong(federation, "boosting") == ""
        made = Signed.FromString(base64.b64decode(approved.countersigned))
        assert x509.load_der_x509_certificate(made.certificate) == second
        await federation.close()
        reader = TranscriptReader(federation.state(B) / "transcripts" / "job", certificates[B].ca)
        assert list(reader)
        assert (reader.anchor.state, reader.anchor.fingerprint) == ("signed", fingerprint(second))

    run(main())
