"""The folder of evidence about a model: papers as pages and as JSON, packages, digests, and this party's signature.

`data-protection-annex.html`, `model-card.html`, and `epsilon.html` where a mechanism with an ε was used, are pages;
`evidence.json` has all their facts, each as what, value and source. `sbom.cdx.json`: the installed distributions, as
CycloneDX 1.6. `model.sha256`: digests of the files of this party's part of the model, as `sha256sum` writes them;
`SHA256SUMS`: those of the files before; its first lines, comments, say of what and when. Where the party has a key,
`SHA256SUMS.sig` is its signature of that file (SHA-256; ECDSA, or RSA by PKCS #1 v1.5), and `signer.pem` its
certificate, as `openssl dgst -sha256 -verify` reads them.
"""

from __future__ import annotations

import json
import platform
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from treetap.commands.options import reading
from treetap.errors import BadInput, cannot
from treetap.models.durable import make_ignored_folder, remove_folder, sync_folder, write_folder
from treetap.ops.evidence.facts import Kept, Paper, annex
from treetap.ops.evidence.papers import epsilons, model_card
from treetap.pages.page import html
from treetap.pages.section import Section, Table, Text
from treetap.party.runtime.ledger import utc
from treetap.version import package_version
from treetap.wire.signatures import sign
from treetap.wire.tls import Insecure

SUMS, SIGNATURE, SIGNER = "SHA256SUMS", "SHA256SUMS.sig", "signer.pem"
#: The first line of what is signed: no other signature of a party's key is of bytes that begin so.
PURPOSE = "# treetap evidence"


def write_evidence(config: Path, model: str, out: Path, experiment: Path | None) -> dict[str, Any]:
    """Write the folder `out`, whole or not at all; what was written, as JSON types: see `treetap evidence --json`.

    Raises:
        BadInput: there is no such model or experiment, or something lies at `out`.
        DataError: a file of the state is damaged.
    """
    with reading(out):
        if out.exists():
            raise BadInput(f"--out {out}: is there already, and evidence is not written over; name another folder")
    kept, now = Kept.of(config, model, experiment), datetime.now(UTC)
    with reading(kept.party.state):
        papers = [annex(kept), model_card(kept), *filter(None, [epsilons(kept)])]
        parts = (path for path in sorted(kept.folder.iterdir()) if path.is_file())
        digests = {path.name: sha256(path.read_bytes()).hexdigest() for path in parts}
    files = {f"{paper.file}.html": _page(paper).encode() for paper in papers}
    files["evidence.json"] = _json({"model": kept.name, "party": kept.party.name, "papers": list(map(asdict, papers))})
    files["sbom.cdx.json"] = _json(bill_of_materials(now))
    files["model.sha256"] = _sums(digests)
    written = {name: sha256(content).hexdigest() for name, content in files.items()}
    job = f"job {kept.manifest['job_digest']}, {utc(now.timestamp())}"
    files[SUMS] = f"{PURPOSE}\n# model {kept.name}, part of {kept.party.name}, {job}\n".encode() + _sums(written)
    if not isinstance(transport := kept.party.transport(), Insecure):
        certificate, files[SIGNATURE] = sign(transport, files[SUMS], "evidence")
        files[SIGNER] = x509.load_der_x509_certificate(certificate).public_bytes(Encoding.PEM)
    with cannot("be written", f"--out {out}"):
        draft = out.with_name(f".{out.name}.part")
        make_ignored_folder(out.parent)
        remove_folder(draft)
        write_folder(draft, files)
        draft.rename(out)
        sync_folder(out.parent)
    empty = [f"{paper.file}: {one.title}" for paper in papers for one in paper.headings if not one.facts]
    return {
        **{"folder": str(out), "files": sorted(files), "signed": SIGNATURE in files},
        **{"facts": sum(len(one.facts) for paper in papers for one in paper.headings), "not_recorded": empty},
    }


def _json(content: object) -> bytes:
    return (json.dumps(content, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def _sums(digests: Mapping[str, str]) -> bytes:
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items()).encode()


def _page(paper: Paper) -> str:
    """A paper as a page that loads nothing; all names are escaped."""
    heads = ("what", "as recorded", "source")
    sections = [
        Section(
            one.title,
            [
                Table(heads, one.facts, one.title, words=(1, 2), style="cards"),
                Text(said="" if one.facts else one.lacking, style="notice"),
            ],
            anchor=f"s{number}",
        )
        for number, one in enumerate(paper.headings, start=1)
    ]
    return html(paper.title, Section("", [Text(paper.about, style="lead")]), sections, Section("", []))


def bill_of_materials(now: datetime) -> dict[str, Any]:
    """The installed distributions as CycloneDX 1.6, each once, with Python itself; licences as they declare them."""
    parts: dict[str, dict[str, Any]] = {}
    for one in metadata.distributions():
        name, license_ = re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(), one.metadata["License-Expression"]
        reference = f"pkg:pypi/{name}@{one.version}"
        parts[reference] = {
            **{"type": "library", "bom-ref": reference, "name": name, "version": one.version, "purl": reference},
            **({"licenses": [{"expression": license_}]} if license_ else {}),
        }
    python = {"type": "platform", "name": platform.python_implementation(), "version": platform.python_version()}
    return {
        **{"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{uuid.uuid4()}", "version": 1},
        "metadata": {
            "timestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {"type": "application", "name": "treetap", "version": package_version()},
        },
        "components": [python, *(parts[reference] for reference in sorted(parts))],
    }
