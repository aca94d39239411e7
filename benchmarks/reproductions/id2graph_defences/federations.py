"""Ciphertexts of real federations, processes and sockets, beside those counted from the trees of the same cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ciphertexts import on_the_wire
from defended_cell import trained, withholding_of
from defended_cells import Cell, wire_cells, wire_key
from id2graph_trial import KEY_BITS, Trial, experiment
from resumable import Results

from treetap import terminal
from treetap.lab.experiment.joined_table import read_table
from treetap.lab.experiment.run import run_seed
from treetap.lab.local_federation import clean_end, working_folder
from treetap.party.defences.settings import Defences, IdLmid, ReducedLeakage

#: What the account of a job calls the ciphertexts of records, by model.
RECORDS = {"forest": "encrypted_labels", "boosting": "gradients"}


def federations(results: Results) -> None:
    """Run the federations that are missing."""
    missing = [cell for cell in wire_cells() if results.get(wire_key(cell)) is None]
    for number, cell in enumerate(missing, 1):
        terminal.err.print(f"wire: {number}/{len(missing)} {cell.name()}", highlight=False)
        results.add(run_federation(cell))


def run_federation(cell: Cell) -> dict[str, Any]:
    """Counted from the trees, and sent: `records`, `candidates`; keys of `key_bits`."""
    asked = experiment(Trial(cell.set, cell.model, cell.seed, "wire", 6, 5))
    asked = asked.model_copy(update={"audit": None, "defences": _defences(cell)})
    table = read_table(asked, Path())
    with clean_end(), working_folder(None, "treetap-defences-") as folder:
        sent = run_seed(asked, table, cell.seed, folder).ciphertexts
    counted = on_the_wire(trained(cell).counting, KEY_BITS)
    found = {"records": sent.get(RECORDS[cell.model], 0), "candidates": sent.get("candidate_sums", 0)}
    return {"trial": wire_key(cell), "key_bits": KEY_BITS, "counted": counted, "sent": found}


def _defences(cell: Cell) -> Defences:
    withheld = withholding_of(cell)
    return Defences(
        id_lmid=None if withheld.xi is None else IdLmid(xi=withheld.xi, counts="shown" if withheld.shown else "paper"),
        reduced_leakage=ReducedLeakage(trees=withheld.own_trees) if withheld.own_trees else None,
    )
