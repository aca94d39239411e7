"""A label holder opens its leaf table to an auditor, who compares it with the commitment that other parties keep."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from party.config import read
from party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap import terminal
from treetap.commands.model.view import find, reading
from treetap.errors import BadInput, ConfigError, DataError, Malformed
from treetap.models.checksums import parse_json
from treetap.models.durable import write_whole
from treetap.models.leaf_table import COMMITMENT, KEY_BYTES, commitment, own_table
from treetap.models.store import read_model
from treetap.names import did_you_mean
from treetap.privacy.leaf_findings import SHORT_BITS, LeafFindings, findings
from treetap.protocols.registry import training
from treetap.wire.roles import Role
from treetap.wire.signatures import signed, verified
from treetap.wire.tls import Insecure, TlsFiles
from treetap.wire.v2.types_pb2 import Signed

log = logging.getLogger(__name__)
Json = dict[str, Any]
_HEX = re.compile(r"[0-9a-f]{64}\Z")
_FIELDS = {"auditor", "party", "key", "table", "signed"}


class Checked(NamedTuple):
    """An opening that fits the commitment: whose it is, for whom, if it is signed, and the figures of its table."""

    party: str
    auditor: str
    job: str
    signed: bool
    figures: LeafFindings


class _Known(NamedTuple):
    """A feature party's part of a model."""

    manifest: Json
    shard: list[Json]


def open_leaves(model: str, config: Path, auditor: str, out: Path) -> str:
    """Write the key and the leaf table of a model for an auditor; returns the commitment, in hexadecimal.

    The opening is in the party's ledger before it is written, and signed with the key of the party's certificate.

    Raises:
        ConfigError: the policy does not name the auditor.
        BadInput: there is no such model, or no such table of it here; see `own_table`.
    """
    party = read(config)
    if auditor not in party.policy.auditors:
        named, meant = json.dumps(party.policy.auditors), did_you_mean(auditor, party.policy.auditors)
        raise ConfigError(
            f"{party.name} opens no leaf table to {auditor}: its policy says auditors = {named}{meant}; if it should, "
            "add the name there",
            party=party.name,
        )
    folder = find(model, config)
    with reading(folder):
        key, table = own_table(folder)
    made, transport = commitment(key, table).hex(), party.transport()
    document = {"party": party.name, "auditor": auditor, "key": key.hex(), "table": table, "signed": ""}
    if not isinstance(transport, Insecure):
        signature = signed(transport, _statement(document, made), "opening of leaves", time.time_ns())
        document["signed"] = base64.b64encode(signature.SerializeToString(deterministic=True)).decode()
    occasion = Occasion("", (auditor,), "", str(table["job"]["name"]), 0)
    ledger_of(party.state).enter(Charge(Kind.OPENED_LEAVES, occasion, len(table["trees"]), {COMMITMENT: made}))
    try:
        write_whole(out, (json.dumps(document, allow_nan=False) + "\n").encode())
    except OSError as failure:
        raise BadInput(f"--out {out}: cannot be written: {failure.strerror}") from None
    log.warning("%s has opened the leaf table of model %s to %s", party.name, model, auditor)
    return made


def check_leaves(file: Path, against: str, ca: Path | None, revoked: Path | None) -> Checked:
    """Compare an opening with a commitment that another party keeps, and compute the figures of its table.

    `against`: the commitment in hexadecimal, or the folder of a feature party's part of the model, whose trees are
    compared too. `ca`: the authority by which the signature is verified; None: it is not looked at.

    Raises:
        DataError: the file is none, its signature does not count, or it does not open this commitment.
        BadInput: `against` is neither.
    """
    document = _read(file)
    made = commitment(bytes.fromhex(document["key"]), document["table"]).hex()
    kept, known = _kept(against)
    if made != kept:
        raise DataError(
            f"{file}: does not open the commitment {kept[:12]}… of --against, but {made[:12]}…: the key, the leaves or "
            "the job are not those that its label holder committed itself to"
        )
    if ca is not None:
        _check_signature(file, document, made, TlsFiles(ca=ca, certificate=ca, key=ca, revoked=revoked))
    try:
        table = document["table"]
        job = table["job"]
        if job["label_holder"] != document["party"]:
            raise DataError(f"{file}: is of {document['party']}, its table of {job['label_holder']}")
        figures = findings(table)
        if known is not None:
            _compare(file, table, known)
    except (KeyError, TypeError, ValueError, OverflowError) as fault:
        raise DataError(
            f"{file}: its table is of another form ({fault!r}): its label holder committed itself to such a one"
        ) from None
    return Checked(document["party"], document["auditor"], str(job["name"]), ca is not None, figures)


def report(checked: Checked) -> Json:
    """The result as JSON types."""
    whose = {"party": checked.party, "auditor": checked.auditor, "job": checked.job, "signature": checked.signed}
    return {**whose, **asdict(checked.figures), "crafted": checked.figures.crafted}


def print_checked(checked: Checked) -> None:
    """Print the result, a line each."""
    figures, signature = checked.figures, "signed by it" if checked.signed else "signature not looked at (--ca)"
    lines = [
        f"leaf table of job {checked.job} of {checked.party}, opened to {checked.auditor}: fits the commitment, "
        f"{signature}",
        f"{figures.trees} trees, {figures.leaves} leaves; {figures.weights} weights, {figures.distinct} different "
        f"ones, and {figures.zeros} of 0",
        f"largest {figures.largest:.6g}, {figures.range_bits:.1f} bits above the smallest; above what their tree can "
        f"have: {'no bound' if figures.beyond is None else figures.beyond}",
        f"{figures.short} different ones of at most {SHORT_BITS} significant bits; "
        f"{figures.chain} each above all smaller ones together",
    ]
    lines += [f"crafted: {fault}" for fault in figures.crafted] or ["no sign of crafted leaves, which proves nothing"]
    for line in lines:
        terminal.out.print(terminal.text(line), soft_wrap=True)


def _read(file: Path) -> Json:
    """The content of an opening, with fields of the right types; DataError for another file."""
    with reading(file):
        text = file.read_bytes()
    try:
        document = parse_json(text)
        if set(document) != _FIELDS or not isinstance(document["table"], dict):
            raise ValueError("its fields are others")
        if any(not isinstance(document[name], str) for name in _FIELDS - {"table"}):
            raise ValueError("a field is of another type")
        if len(bytes.fromhex(document["key"])) != KEY_BYTES:
            raise ValueError(f"its key has not {KEY_BYTES} bytes")
        json.dumps(document, allow_nan=False)
    except (AttributeError, TypeError, ValueError, RecursionError) as fault:
        raise DataError(f"{file}: is no opened leaf table ({fault}); have it written again by open-leaves") from None
    whole: Json = document
    return whole


def _kept(against: str) -> tuple[str, _Known | None]:
    """The commitment of `--against`, and what a feature party knows beside it if it is a folder."""
    if _HEX.match(against):
        return against, None
    folder = find(against, None)
    with reading(folder):
        manifest, shard = read_model(folder)
    if manifest["role"] != "feature_party":
        raise BadInput(f"--against {folder}: is the part of {manifest['party']} itself; name a feature party's")
    if not manifest.get(COMMITMENT):
        raise BadInput(f"--against {folder}: has no commitment: the model is of a release without them; train it again")
    return str(manifest[COMMITMENT]), _Known(manifest, shard)


def _check_signature(file: Path, document: Json, made: str, files: TlsFiles) -> None:
    """DataError unless the party that the opening names has signed it."""
    try:
        signature = Signed.FromString(base64.b64decode(document["signed"], validate=True))
        name, _ = verified(files, signature, _statement(document, made), Role.PARTY)
    except (ValueError, DecodeError):
        raise DataError(f"{file}: its signature cannot be read: the file was changed") from None
    except Malformed as fault:
        raise DataError(f"{file}: {fault}") from None
    if name != document["party"]:
        raise DataError(f"{file}: is signed by {name}, not by {document['party']}")


def _statement(document: Json, made: str) -> bytes:
    """The bytes that a party signs with their time: no other signature of its key is of bytes that begin so."""
    content = {"auditor": document["auditor"], "party": document["party"], COMMITMENT: made}
    return b"treetap opened leaves\n" + json.dumps(content, sort_keys=True).encode()


def _compare(file: Path, table: Json, known: _Known) -> None:
    """DataError unless the table is of the training that a feature party knows: job, protocol, leaves of trees."""
    manifest, job = known.manifest, table["job"]
    of = {"job": job["name"], "job_digest": job["digest"], "label_holder": job["label_holder"]}
    trees = training(manifest["protocol"]).trees
    averaged = trees is not None and not trees.sequential
    if of != {name: manifest[name] for name in of} or table["averaged"] != averaged:
        raise DataError(
            f"{file}: its table is of job {job['name']} of {job['label_holder']}, {job['digest'][:12]}…, not of the "
            f"training that --against is of, {manifest['job']} of {manifest['label_holder']}, "
            f"{manifest['job_digest'][:12]}… by {manifest['protocol']}: its label holder committed itself to that one"
        )
    kept = [len(line["leaves"]) for line in known.shard]
    shown = [(1 << tree["padded"]) if tree["padded"] else len(tree["leaves"]) for tree in table["trees"]]
    if kept != shown:
        raise DataError(
            f"{file}: its trees have {sum(shown)} leaves, those of --against {sum(kept)}: they are not the trees that "
            "the feature party has agreed to"
        )
