"""The attack by opened sums on the columns of each [[victim]], from the files of an audit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attacks.audit_file import AuditFile
from attacks.files import AuditedParty, Victim
from attacks.registry import Needs, rows
from attacks.sums.attack import SumsEvidence
from attacks.sums.kept import Kept
from attacks.sums.schema import ColumnFigures, SumsSettings
from attacks.sums.scoring import TrueColumns
from attacks.view.own_table import as_numbers, check_names, load_own_table
from attacks.view.view import View
from treetap.errors import BadInput
from treetap.tables.config import TableConfig
from treetap.tables.opening import columns_of
from treetap.tables.reading import Table, read_table
from treetap.tables.record_ids import Ids
from treetap.version import package_version

#: Beside the label holder's transcript: results of finished steps, so that an audit can go on after an interruption.
FOLDER = "audit-steps"


def columns_read(
    file: AuditFile, party: AuditedParty, view: View, say: Callable[[str], None]
) -> dict[str, ColumnFigures]:
    """The figures of each [[victim]].

    Raises:
        BadInput: a table lacks records of the job, or is not the one that the party trained on.
        DataError: a table cannot be read, or has no such column.
    """
    assert view.opened is not None  # `attacks.label_holder_audit` checks both
    assert party.table is not None
    ids = load_own_table(party.table, view, party.id, []).ids
    settings, figures = SumsSettings.read(file.sums), {}
    for victim in file.victim:

        def of_victim(part: str, name: str = victim.name) -> None:
            say(f"columns of {name}: {part}")

        kept = Kept.of(
            party.transcript.parent / FOLDER,
            package_version(),
            view.job,
            view.attempt,
            view.anchor,
            victim.name,
            settings,
            [(tree.index, int(tree.values.sum()), sorted(tree.nodes)) for tree in view.opened.trees],
        )
        truth = TrueColumns.of(_truth(victim, ids, view), view.opened.params.max_bin)
        evidence = SumsEvidence(victim.name, view.opened, truth, settings, of_victim, kept)
        for row in rows(Needs.SUMS).values():
            if victim.attacks is None or row.name in victim.attacks:
                figures[victim.name] = row.run(evidence)
        kept.clear()
    return figures


def _truth(victim: Victim, ids: Ids, view: View) -> Table:
    """The party's own table in the common order of the records; columns of text are numbered."""
    assert victim.truth is not None
    have = columns_of(victim.truth)
    wanted = [name for name in have if name != victim.id] if victim.columns is None else victim.columns
    check_names(victim.truth, have, [victim.id, *wanted])
    config = TableConfig(path=victim.truth, id=victim.id, columns=wanted, encode=as_numbers(victim.truth, wanted))
    table = read_table(config, with_label=False, missing=view.missing)
    places = table.ids.places_of(ids)
    if absent := int((places < 0).sum()):
        raise BadInput(
            f"{victim.truth}: column {victim.id!r} lacks {absent} of the {len(places)} ids of job {view.job!r}: it is "
            f"not the table that {victim.name} trained on"
        )
    return table.take(np.asarray(places, dtype=np.int64))
