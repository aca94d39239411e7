"""What earlier versions had and this one has not: one table, a row each, from which every refusal of one is made.

`where` is the name of the schema that had the key (`treetap.strict`), `COMMANDS` for words of the command line, or
`STATE` for a file of a party's state folder. A value that is no longer known is named as `key = 'value'`, also of a
list.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from treetap.errors import ConfigError

COMMANDS, STATE = "commands", "state folder"
#: The last commit that reads what this version refuses.
LAST = "11ce4873"


class Removed(NamedTuple):
    """A row: `name` of `where` was taken out; `instead`: what a person does now, in the imperative."""

    where: str
    name: str
    instead: str

    def __str__(self) -> str:
        return f"was taken out: {self.instead}"


#: Kinds of charges in ledgers of earlier versions: they are read and shown, and count for no limit of today.
CHARGED = ("cells in small groups", "opened leaf table", "stops by max_column_leakage")

_ATTACK = "leave it out; benchmarks/crafted_gradients.py has the attack, and an audit finds it in a transcript"
REMOVED: tuple[Removed, ...] = (
    Removed(
        "PartyConfig",
        "state_key",
        "put the state folder on an encrypted volume (docs/operations.md); where it has key.json, first run treetap "
        f"state rotate of commit {LAST} with former_state_key in the place of this key",
    ),
    Removed(
        "PartyConfig",
        "former_state_key",
        f"leave it out; where the state folder has key.json, first run treetap state rotate of commit {LAST} with it",
    ),
    Removed(
        COMMANDS,
        "state",
        f"put the state folder on an encrypted volume (docs/operations.md); one that has key.json needs commit {LAST}",
    ),
    Removed(
        STATE,
        "key.json",
        f"check out commit {LAST}, name the key as former_state_key instead of state_key, run treetap state rotate, "
        "which decrypts the folder, and start this version then",
    ),
    Removed(
        "TlsConfig",
        "signing",
        "delete [tls.signing]: key signs documents, too; what the token has signed still counts",
    ),
    Removed(
        "AuthorityFile",
        "token",
        "make a new authority, whose key is in ca.key, and have processes trust both at first, as docs/deploy.md says",
    ),
    Removed(
        COMMANDS,
        "certs renew",
        "run treetap certs request NAME --role ROLE --out FOLDER, have it signed, then treetap certs install",
    ),
    Removed("ServeConfig", "http", "write listen and gateway = NAME; `treetap new gateway` writes what answers HTTP"),
    *(
        Removed("ServeConfig", key, "write it into the file of the gateway that answers HTTP (`treetap new gateway`)")
        for key in ("plain_http", "hosts", "handshakes", "proxies")
    ),
    Removed(COMMANDS, "trail", "read charges by treetap ledger, decisions by treetap jobs, messages by a transcript"),
    Removed(STATE, "trail.jsonl", "move it to where an auditor keeps it; nothing reads it any more"),
    Removed(
        COMMANDS, "capacity", "read Planning in docs/operations.md: measured trainings, and a formula for each cost"
    ),
    Removed(COMMANDS, "data", "run python benchmarks/data.py in a copy of the sources"),
    Removed(
        "ExperimentFile",
        "frontier",
        "write a table [[defence]] for each defence (docs/measure.md), settings of attacks into [audit], and say who "
        "trains by treetap frontier --trainer",
    ),
    Removed("OutputTable", "tensorboard", "log to MLflow (mlflow = ...), or read history.csv beside the results"),
    Removed(
        COMMANDS,
        "certs sign --renewals",
        "have each process ask by treetap certs request, and sign these requests one by one",
    ),
    Removed(
        COMMANDS,
        "certs request --signing",
        "leave it out: the key of a process's certificate signs its documents, too",
    ),
    Removed("Policy", "max_column_leakage", "leave it out; noise (column_privacy) bounds what sums tell"),
    Removed(STATE, "column_leakage/*", "move the folder away; the ledger keeps what was charged for its cells"),
    Removed("Policy", "auditors", "leave it out: no leaf table is opened"),
    Removed(COMMANDS, "model history", "read `history` of `treetap model show --json`"),
    Removed(COMMANDS, "model open-leaves", f"open leaf tables with treetap of commit {LAST}"),
    Removed(COMMANDS, "model check-leaves", f"check opened leaf tables with treetap of commit {LAST}"),
    Removed("JobOptions", "scheme = 'okamoto-uchiyama'", "write 'paillier', or 'lattice', which is many times as fast"),
    *(
        Removed(COMMANDS, f"{word} --scheme", "leave it out: eini sums by Paillier, eini-lattice on a lattice")
        for word in ("predict", "serve")
    ),
    Removed("KeyPolicy", "schemes = 'okamoto-uchiyama'", "write 'paillier' or 'lattice' in its place"),
    Removed("Policy", "require_key_proofs", "leave it out: every key of Paillier's has a proof, and a lattice no key"),
    Removed("Parameters", "gradient_bits", "leave it out: sums are exact"),
    Removed("Policy", "max_gradient_bits", "leave it out; a feature party's column_privacy bounds what sums tell"),
    Removed("PartyConfig", "gradients", _ATTACK),
    Removed("PartyTable", "gradients", _ATTACK),
    Removed("WorkerSettings", "key_workers", "write workers = N of processes here, and [cluster] workers = N of Ray's"),
    Removed("Policy", "cluster_holds_key", "leave it out: no key goes to a cluster, which sums ciphertexts alone"),
    Removed("PartyTable", "cluster_holds_key", "leave it out: no key goes to a cluster, which sums ciphertexts alone"),
)


def removed(where: Iterable[str], name: str) -> Removed | None:
    """The row of a name at one of these places; None where it has none."""
    places = set(where)
    return next((row for row in REMOVED if row.name == name and row.where in places), None)


def check_state(folder: Path) -> None:
    """Raise `ConfigError` if a party's state folder holds a file that this version neither reads nor writes."""
    for row in REMOVED:
        if row.where == STATE and (file := next(folder.glob(row.name), None)) is not None:
            raise ConfigError(f"{file}: {row}")
