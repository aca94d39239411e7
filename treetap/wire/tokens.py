"""Keys in a PKCS#11 token, named by a URI of RFC 7512: they sign there and leave it never.

Each signature logs in, signs and logs out again. A PIN that the token has refused is not tried again in this process,
since a token locks after a few wrong ones. Calls of one token are serial: a login holds for a whole process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Generic, Never, Self, TypeVar
from urllib.parse import unquote, unquote_to_bytes

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import AsymmetricPadding, PKCS1v15
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from treetap.errors import ConfigError
from treetap.strict import unshown
from treetap.version import install
from treetap.wire.certificates import Phrase

#: Seconds for a token to log in and sign once.
WITHIN_S = 10.0
#: Attributes of RFC 7512 that choose a token, and those that choose a key in it.
_OF_TOKENS, _OF_KEYS = ("token", "serial", "manufacturer", "model"), ("object", "id")
_ATTRIBUTE = re.compile(r"([a-z]+)=((?:[A-Za-z0-9._~:\[\]@!$'()*+,=&-]|%[0-9A-Fa-f]{2})+)")
_MOST = 8
_OTHER = "uri: the key is not that of the certificate, or cannot make this kind of signature"
_STAYS = "a key in a token does not leave it"
_TRIAL = b"treetap trial\n"  # no document begins so
_LOCK = Lock()
_REFUSED: dict[bytes, str] = {}  #: A token's serial number → the last PIN that it has refused.
_Result = TypeVar("_Result")
_Public = TypeVar("_Public", ec.EllipticCurvePublicKey, rsa.RSAPublicKey)
_Bytes = bytes | bytearray | memoryview
_FAULTS = {
    "TokenNotPresent": "uri: the token is not there",
    "PinIncorrect": "pin: the token refuses it; it is not tried again before the place of the PIN has another",
    "PinLenRange": "pin: the token takes none of this length",
    "PinInvalid": "pin: the token takes none of this form",
    "PinExpired": "pin: it has expired; set another with the token's own tool",
    "PinLocked": "pin: the token is locked after wrong ones; unlock it with the token's own tool",
    "UserPinNotInitialized": "pin: the token has none yet; set one with the token's own tool",
}


def parts_of(uri: str) -> dict[str, str]:
    """The attributes of a URI. Raises ValueError, which shows no part of it: it may have a PIN."""
    scheme, _, path = uri.partition(":")
    matches = [_ATTRIBUTE.fullmatch(part) for part in path.split(";")]
    parts = {match[1]: match[2] for match in matches if match is not None}
    if scheme != "pkcs11" or None in matches or len(parts) < len(matches):
        raise unshown("is pkcs11:token=NAME;object=NAME (RFC 7512); the PIN and the module are keys of their own")
    if more := set(parts) - {*_OF_TOKENS, *_OF_KEYS, "type"}:
        raise unshown(f"has {', '.join(sorted(more))}; it may have {', '.join((*_OF_TOKENS, *_OF_KEYS))}")
    named = {"token", "serial"} & set(parts) and set(_OF_KEYS) & set(parts)
    if not named or parts.get("type", "private") != "private":
        raise unshown("names a token, by token= or serial=, and in it a private key, by object= or id=")
    return parts


@dataclass(frozen=True)
class Token:
    """A key in a token. Raises ConfigError wherever it cannot be used. `where`: begins messages."""

    uri: str
    module: Path
    pin: Phrase | None
    where: str

    def key(self, public: PublicKeyTypes) -> TokenEcKey | TokenRsaKey:
        """The private key of a public one; each signature is verified by that."""
        if isinstance(public, ec.EllipticCurvePublicKey):
            return TokenEcKey(self, public)
        if isinstance(public, rsa.RSAPublicKey):
            return TokenRsaKey(self, public)
        raise ConfigError(f"{self.where}: its certificate is of neither an elliptic-curve nor an RSA key")

    def key_pair(self) -> TokenEcKey | TokenRsaKey:
        """The key, by the public one in the token; where it has none of this name, a new one of curve P-256."""
        return self.key(self._within(self._public, rw=True))

    def sign(self, data: bytes, mechanism: str) -> bytes:
        """The token's signature by a mechanism of PKCS#11."""

        def work(session: Any) -> bytes:
            import pkcs11

            key = self._only(session, pkcs11.ObjectClass.PRIVATE_KEY)
            if not isinstance(key, pkcs11.SignMixin):
                raise self.fault("uri: the token lets this key sign nothing (CKA_SIGN)")
            return bytes(key.sign(data, mechanism=pkcs11.Mechanism[mechanism]))

        return self._within(work)

    def fault(self, message: str) -> ConfigError:
        """An error about this key."""
        return ConfigError(f"{self.where}: {message}")

    def _public(self, session: Any) -> PublicKeyTypes:
        import pkcs11
        from pkcs11.util.ec import encode_ec_public_key, encode_named_curve_parameters

        names, kinds = pkcs11.Attribute, pkcs11.ObjectClass
        if not self._fitting(session, kinds.PRIVATE_KEY):
            curve = {names.EC_PARAMS: encode_named_curve_parameters("secp256r1")}
            parameters = session.create_domain_parameters(pkcs11.KeyType.EC, curve, local=True)
            secret = {names.SENSITIVE: True, names.EXTRACTABLE: False}
            parameters.generate_keypair(store=True, private_template=secret, **self._named())
        key = self._only(session, kinds.PUBLIC_KEY)
        if key.key_type is pkcs11.KeyType.RSA:
            exponent, modulus = (int.from_bytes(key[name], "big") for name in (names.PUBLIC_EXPONENT, names.MODULUS))
            return rsa.RSAPublicNumbers(exponent, modulus).public_key()
        if key.key_type is not pkcs11.KeyType.EC:
            raise self.fault("uri: the key is neither an elliptic-curve nor an RSA key")
        return serialization.load_der_public_key(encode_ec_public_key(key))

    def _only(self, session: Any, kind: Any) -> Any:
        fitting = self._fitting(session, kind)
        if len(fitting) != 1:
            raise self.fault(f"uri: the token has {len(fitting)} such keys ({kind.name}); name one by object= and id=")
        return fitting[0]

    def _fitting(self, session: Any, kind: Any) -> list[Any]:
        """The keys of a kind that the URI names."""
        import pkcs11

        named = {pkcs11.Attribute[name.upper()]: value for name, value in self._named().items()}
        return list(islice(session.get_objects({pkcs11.Attribute.CLASS: kind, **named}), _MOST))

    def _named(self) -> dict[str, Any]:
        """The key's attributes by their names in PKCS #11."""
        parts = parts_of(self.uri)
        named: dict[str, Any] = {"label": unquote(parts["object"])} if "object" in parts else {}
        return named | ({"id": unquote_to_bytes(parts["id"])} if "id" in parts else {})

    def _within(self, work: Callable[[Any], _Result], *, rw: bool = False) -> _Result:
        """The result of a session in which the user is logged in; a module that hangs is left after `WITHIN_S`."""
        pin = self._read_pin()
        late = self.fault(f"module: {self.module} took longer than {WITHIN_S:g} s")
        result: Future[_Result] = Future()

        def run() -> None:
            try:
                result.set_result(self._session(pin, work, rw=rw))
            except Exception as fault:  # noqa: BLE001 - raised below
                result.set_exception(fault)
            finally:
                _LOCK.release()

        if not _LOCK.acquire(timeout=WITHIN_S):
            raise late
        Thread(target=run, daemon=True).start()
        try:
            return result.result(WITHIN_S)
        except TimeoutError:
            raise late from None

    def _read_pin(self) -> str:
        field = f"{self.where}: pin"
        if self.pin is None:
            raise ConfigError(f'{field}: is missing; say where it comes from, such as pin = {{ command = ["..."] }}')
        pin = self.pin.phrase(field)
        try:
            return pin.decode()
        except UnicodeDecodeError:
            raise ConfigError(f"{field}: is not UTF-8 text") from None

    def _session(self, pin: str, work: Callable[[Any], _Result], *, rw: bool) -> _Result:
        try:
            import pkcs11
        except ImportError:
            raise self.fault(f"needs python-pkcs11: {install('tokens')}") from None
        if not self.module.is_file():
            raise self.fault(f"module: {self.module}: no such file")
        try:
            loaded: Any = pkcs11.lib(str(self.module))
            if not loaded.initialized:
                loaded.initialize()
        except RuntimeError:
            raise self.fault(f"module: {self.module} cannot be loaded as a PKCS#11 module on this host") from None
        try:
            token = self._chosen(list(loaded.get_tokens()))
            if _REFUSED.get(token.serial) == pin:
                raise self.fault(_FAULTS["PinIncorrect"])
            if token.flags & pkcs11.TokenFlag.USER_PIN_FINAL_TRY:
                raise self.fault("pin: the token would lock after one more wrong one; log in with its own tool first")
            with token.open(rw=rw, user_pin=pin) as session:
                return work(session)
        except pkcs11.PinIncorrect:
            _REFUSED[token.serial] = pin
            raise self.fault(_FAULTS["PinIncorrect"]) from None
        except pkcs11.PKCS11Error as fault:  # its text may be of the vendor: the name says enough
            name = type(fault).__name__
            raise self.fault(_FAULTS.get(name, f"uri: the token cannot do this: {name}")) from None

    def _chosen(self, tokens: list[Any]) -> Any:
        """The one token that the URI names."""
        wanted = {name: unquote(value) for name, value in parts_of(self.uri).items() if name in _OF_TOKENS}
        fitting = [token for token in tokens if wanted.items() <= _said(token).items()]
        if len(fitting) != 1:
            raise self.fault(f"uri: {self.module} has {len(fitting)} such tokens; name one, by serial= if need be")
        return fitting[0]


def _said(token: Any) -> dict[str, str]:
    """A token's attributes by their names in RFC 7512."""
    values = token.label, token.serial.decode(errors="replace"), token.manufacturer_id, token.model
    return dict(zip(_OF_TOKENS, values, strict=True))


class _InToken(Generic[_Public]):
    """The parts that keys of each kind have in common: their public key, and refusals to give the private one away."""

    _public: _Public

    def __init__(self, token: Token, public: _Public) -> None:
        self._token, self._public = token, public

    def public_key(self) -> _Public:
        """The public key, by which each signature is verified before it is given away."""
        return self._public

    @property
    def key_size(self) -> int:
        """Bits of the curve's order, or of the modulus."""
        return self._public.key_size

    def private_numbers(self) -> Never:
        """Nothing: the key does not leave the token."""
        raise TypeError(_STAYS)

    def private_bytes(self, *_: object) -> Never:
        """Nothing: the key does not leave the token."""
        raise TypeError(_STAYS)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class TokenEcKey(_InToken[ec.EllipticCurvePublicKey], ec.EllipticCurvePrivateKey):
    """An elliptic-curve key in a token, for builders of certificates and for signatures."""

    @property
    def curve(self) -> ec.EllipticCurve:
        """Its curve."""
        return self._public.curve

    def sign(self, data: _Bytes, signature_algorithm: ec.EllipticCurveSignatureAlgorithm) -> bytes:
        """An ECDSA signature with SHA-256, in DER. Raises ConfigError."""
        assert isinstance(signature_algorithm, ec.ECDSA)
        assert isinstance(signature_algorithm.algorithm, hashes.SHA256)
        made = self._token.sign(sha256(data).digest(), "ECDSA")  # r and s one after the other
        r, s = (int.from_bytes(half, "big") for half in (made[: len(made) // 2], made[len(made) // 2 :]))
        signature = encode_dss_signature(r, s)
        try:
            self._public.verify(signature, data, signature_algorithm)
        except InvalidSignature:
            raise self._token.fault(_OTHER) from None
        return signature

    def try_out(self) -> None:
        """Sign nothing of use. Raises ConfigError."""
        self.sign(_TRIAL, ec.ECDSA(hashes.SHA256()))

    def exchange(self, *_: object) -> Never:
        """Nothing: the key signs only."""
        raise TypeError(_STAYS)


class TokenRsaKey(_InToken[rsa.RSAPublicKey], rsa.RSAPrivateKey):
    """An RSA key in a token, for builders of certificates and for signatures."""

    def sign(self, data: _Bytes, padding: AsymmetricPadding, algorithm: object) -> bytes:
        """A signature by PKCS #1 v1.5 with SHA-256. Raises ConfigError."""
        assert isinstance(padding, PKCS1v15)
        assert isinstance(algorithm, hashes.SHA256)
        signature = self._token.sign(bytes(data), "SHA256_RSA_PKCS")
        try:
            self._public.verify(signature, bytes(data), padding, algorithm)
        except InvalidSignature:
            raise self._token.fault(_OTHER) from None
        return signature

    def try_out(self) -> None:
        """Sign nothing of use. Raises ConfigError."""
        self.sign(_TRIAL, PKCS1v15(), hashes.SHA256())

    def decrypt(self, *_: object) -> Never:
        """Nothing: the key signs only."""
        raise TypeError(_STAYS)
