"""The audit at the end of a local federation's run: its file for `treetap audit`, its figures, its report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treetap.attacks import audit
from treetap.attacks.audit_file import FILE, AuditFile, audited_runs, known_attacks, read
from treetap.attacks.case import ByTree
from treetap.attacks.files import AuditedParty, LabelTable, Victim
from treetap.commands.jobs import progress_view
from treetap.errors import BadInput, Malformed
from treetap.lab.local_federation import to_toml
from treetap.models.durable import write_whole
from treetap.pages.page import drawn
from treetap.pages.section import Section

REPORT, DOCUMENT = "audit.html", "audit.json"


def write_file(
    folder: Path,
    parties: Sequence[AuditedParty],
    label: LabelTable,
    more: Mapping[str, Any],
    evaluation: LabelTable | None = None,
    victims: Sequence[Victim] = (),
) -> AuditFile:
    """audit.toml of a run, with paths relative to its folder so that the folder can be moved. `more`: further keys."""
    content = {**more, "label": label.near(folder)}
    content |= {} if evaluation is None else {"evaluation": evaluation.near(folder)}
    for name, files in (("party", parties), ("victim", victims)):
        content |= {name: [it.near(folder) for it in files]} if files else {}
    write_whole(folder / FILE, to_toml(content).encode())
    return read(folder)


def run(folder: Path, file: AuditFile, *, by_tree: ByTree) -> dict[str, Any]:
    """The audit document; it and the report are written to the folder."""
    from treetap.attacks.report import html

    with progress_view.steps("audit") as progress:
        document = audit.audit(file, by_tree=by_tree, progress=progress).plain()
    write_whole(folder / DOCUMENT, json.dumps(document).encode())
    if (page := drawn(folder / REPORT, lambda: html(document))) is not None:
        write_whole(folder / REPORT, page.encode())
    return document


def verdict_lines(document: Mapping[str, Any]) -> list[str]:
    """Say what each side learned, by an audit's document."""
    from treetap.attacks.document import parse
    from treetap.attacks.report.verdict import short_form

    return [str(part) for part in Section("", short_form(parse(document))).shown("terminal")]


def audit_folder(folder: Path, *, attacks: Sequence[str] | None = None, by_tree: ByTree = "few") -> dict[str, Any]:
    """Audit a folder that holds audit.toml; the document and the report are written to it.

    Raises:
        BadInput: the file has a fault, an attack is not known, a transcript was changed, nothing can be written, or the
            folder is an experiment's with several runs.
    """
    runs = audited_runs(folder)
    if runs.several:
        raise BadInput(f"{folder}: is the folder of an experiment: name one of its runs, such as {runs.audited[0]}")
    file = read(folder)
    try:
        if attacks is not None:
            file = file.model_copy(update={"attacks": known_attacks(list(attacks))})
        return run(folder, file, by_tree=by_tree)
    except (Malformed, ValueError) as fault:
        raise BadInput(str(fault)) from None
    except OSError as failure:
        raise BadInput(f"{folder}: cannot be written: {failure.strerror}") from None


def scores(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Party → attack → its figures; of PIVODL also what its messages disclose; of a label holder `victims`, of trees
    `columns_read`, by party, without pictures.
    """
    from treetap.attacks.registry import Needs, rows

    return {
        name: {
            **party["attacks"],
            **{key: known[key] for key in rows(Needs.KNOWN_LABELS) if known.get(key) is not None},
            **{key: party[key] for key in rows(Needs.SHARED_LABELS) if key in party},
            **{key: network[key] for key in rows(Needs.GRADIENTS) if network.get(key) is not None},
            **{key: _without_pictures(party[key]) for key in ("victims", "columns_read") if key in party},
        }
        for name, party in document["parties"].items()
        for network, known in [(party.get("network", {}), party.get("known_labels", {}))]
    }


def _without_pictures(victims: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: {key: value for key, value in victim.items() if key not in ("pictures", "picture")}
        for name, victim in victims.items()
    }
