"""The state key of a party: `state/key.json` says which one a state folder has, and is compared at every start.

    {"keys": [{"id": …, "check": …}], "to": …}

`check` is a constant that the key encrypts. While `treetap state rotate` is at work there are two keys, or one and
none, and `to` is the id of the one that files get, empty for none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from party.runtime.job_store import KEY_FILE
from party.runtime.state_files import KINDS, sealed
from treetap.errors import BadInput, ConfigError
from treetap.models.checksums import parse_json
from treetap.models.durable import make_folder, remnant, write_whole
from treetap.models.sealed import Seal, StateKey, is_sealed
from treetap.process.secret import Secret

_CONSTANT = b"treetap state key"
_ROTATE = "stop the party and run treetap state rotate --config FILE"


class Noted(NamedTuple):
    """The content of `KEY_FILE`.

    Attributes:
        checks: id of a key, hexadecimal → the encrypted constant.
        to: the id of the key that a rotation under way gives to files, empty for none; None: none is under way.
    """

    checks: dict[str, bytes]
    to: str | None = None

    def write(self, state: Path) -> None:
        """Write the file, durably."""
        rows = [{"id": name, "check": check.hex()} for name, check in self.checks.items()]
        content = {"keys": rows} | ({} if self.to is None else {"to": self.to})
        write_whole(state / KEY_FILE, (json.dumps(content, indent=1) + "\n").encode())

    def knows(self, key: StateKey) -> bool:
        """True if the constant was encrypted by this key."""
        return key.open(self.checks.get(key.id.hex(), bytes(40)), _CONSTANT) == _CONSTANT


def key_of(secret: Secret, named: str) -> StateKey:
    """The key at a place; `named`: the key of the configuration that names it. Raises ConfigError."""
    return StateKey.of_text(secret.phrase(named).decode(errors="replace"), named)


def seal_of(state: Path, key: StateKey) -> Seal:
    """The sealing of a party's state folder."""
    return Seal(state, key, sealed)


def noted(state: Path) -> Noted | None:
    """The keys that a state folder has; None without the file. Raises BadInput for a damaged one."""
    path = state / KEY_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as failure:
        raise BadInput(f"{path}: cannot be read: {failure.strerror}") from None
    try:
        plain = parse_json(content)
        checks = {str(row["id"]): bytes.fromhex(row["check"]) for row in plain["keys"]}
        if not checks:
            raise ValueError
        return Noted(checks, None if plain.get("to") is None else str(plain["to"]))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadInput(f"{path}: is damaged; bring a back-up of the file back") from None


def checked(key: StateKey) -> bytes:
    """The encrypted constant of a key."""
    return key.seal(_CONSTANT, _CONSTANT)


def check_key(state: Path, key: StateKey | None) -> None:
    """Compare a party's key as `compare` does, and note it in a new folder."""
    compare(state, key)
    if key is not None and noted(state) is None:
        make_folder(state)
        Noted({key.id.hex(): checked(key)}).write(state)


def compare(state: Path, key: StateKey | None) -> None:
    """Compare a party's key with its state folder; nothing is written.

    Raises:
        ConfigError: the folder has another key, none, or one where the configuration has none; or a rotation has not
            ended.
    """
    known = noted(state)
    own = "" if key is None else key.id.hex()
    if known is None:
        if key is not None:
            _require_new(state, own)
        return
    if known.to is not None:
        raise ConfigError(
            f"state_key: {state} has files of two keys, since a rotation was interrupted; {_ROTATE} again"
        )
    (name, *_) = known.checks
    if key is None:
        raise ConfigError(f"state_key: {state} is encrypted with state key {name}: give that key, or a back-up of it")
    if own != name:
        raise ConfigError(
            f"state_key: {state} is encrypted with state key {name}, and this one is {own}: give the first, or to "
            f"change it name it as former_state_key, {_ROTATE}"
        )
    if not known.knows(key):
        raise ConfigError(f"{state / KEY_FILE}: does not fit state key {name}; bring a back-up of the file back")


def files_of_records(state: Path) -> list[Path]:
    """The files of a state folder that a state key encrypts, encrypted or not, in order."""
    patterns = [kind.pattern for kind in KINDS if not kind.clear]
    places = {path for pattern in patterns for path in state.glob(pattern) if path.is_file() and not remnant(path)}
    return sorted(path for path in places if sealed(path.relative_to(state).as_posix()))


def _require_new(state: Path, own: str) -> None:
    for path in files_of_records(state):
        if is_sealed(path):
            raise ConfigError(f"{state / KEY_FILE}: is not there, and {path} is encrypted; bring a back-up of it back")
        raise ConfigError(f"state_key: {path} is in clear: to encrypt the state with state key {own}, {_ROTATE}")
