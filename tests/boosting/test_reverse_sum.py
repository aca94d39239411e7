"""A label holder that marks records in g and h: what it reads, and what shows it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.crafted_gradients import ANCHORS, CraftedRounds, ReverseSum
from tests.simulator import Federation, run
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.attacks import audit_file
from treetap.attacks.audit import audit
from treetap.attacks.document import Document, parse
from treetap.attacks.report.page import html, print_summary
from treetap.attacks.report.sums import CHANCE, mark_words
from treetap.attacks.sums.reverse_sum import HONEST, marks_of
from treetap.attacks.sums.schema import MarkedCells
from treetap.lab.local_federation import to_toml
from treetap.party.defences.settings import Defences
from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.params import BoostingParams

HOLDER, B, C = PARTIES
HERE = world(150, (1, 2, 2), seed=5)
PARAMS = BoostingParams(n_estimators=6, max_depth=2, max_bin=8)
PAILLIER = {"key_bits": 512, "obfuscation": "standard"}
#: Jobs and feature parties' defences under which marks are read all the same.
JOBS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "paillier": (PAILLIER, {}, {}),
    "a lattice, spaces withheld": ({"scheme": "lattice"}, {"instance_spaces": "withheld"}, {}),
    "merged bins": (PAILLIER, {}, {"min_cell_records": 10}),
}
pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")


def trained(
    folder: Path, job: dict[str, Any], params: BoostingParams, defences: dict[str, Any], *, crafts: bool
) -> str:
    """The error of a training, empty of a finished one, whose folders are below `folder`."""
    policies = {HOLDER: {"people": {"record_sums": True}}}

    async def main() -> str:
        own = {party: Defences(**defences) for party in (B, C)}
        federation = Federation(folder, HERE.tables, record="received", policies=policies, defences=own)
        status = await federation.train(spec(params, **job))
        return status.error

    with patch("treetap.party.boosting.label_holder.BoostingRounds", CraftedRounds if crafts else BoostingRounds):
        return run(main())


def audited(folder: Path) -> Document:
    """The audit of the label holder and of one feature party."""
    for name in PARTIES:
        pq.write_table(HERE.tables[name][1]["train"], folder / f"{name}.parquet")
    parties = [
        {"name": name, "transcript": f"{name}/state/transcripts", "table": f"{name}.parquet"} for name in (HOLDER, B)
    ]
    victims = [{"name": name, "truth": f"{name}.parquet"} for name in (B, C)]
    content = {"party": parties, "victim": victims, "classes": 2, "attacks": ["uni"], "sums": {"steps": 0}}
    (folder / "audit.toml").write_text(to_toml(content))
    return audit(audit_file.read(folder), by_tree=False, progress=lambda *_: None)


def said(document: Document, folder: Path) -> str:
    """The terminal's report in one line."""
    console = Console(width=200, record=True, file=(folder / "shown").open("w"))
    print_summary(document, console)
    return " ".join(console.export_text().split())


@pytest.mark.second_tier
@pytest.mark.parametrize("kind", JOBS)
def test_marked_records_are_read(kind: str, tmp_path: Path) -> None:
    """Every cell of every record under each scheme."""
    job, changes, defences = JOBS[kind]
    assert trained(tmp_path, job, replace(PARAMS, **changes), defences, crafts=True) == ""
    document = audited(tmp_path)
    marks = ReverseSum.of(PARAMS, 1).marks
    read = document.parties[HOLDER].marks_read
    assert read is not None
    for figures in read.values():
        assert figures.given is not None
        assert figures.read is not None
        assert (figures.trees, figures.marks) == (6, 6 * marks)
        assert figures.given.wrong == 0
        assert figures.read.placed > (0.5 if defences else 0.9)
        assert figures.given.placed == 1.0 or defences
        assert figures.given.claims >= 2 * figures.records
    text = said(document, tmp_path)
    assert f"{HOLDER} marked {read[B].records} records by bits of g and h of their own in 6 trees" in text
    assert f"</bdi> marked {read[B].records} records by bits" in html(parse(document.plain()))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("kind", ["a lattice, spaces withheld", "paillier"])
def test_an_honest_training_has_no_marks_and_the_same_room(kind: str, tmp_path: Path) -> None:
    """Nothing is found; the model is the oracle's; both sides' transcripts tell what could have been read."""
    job, changes, _ = JOBS[kind]
    params = replace(PARAMS, **changes)
    assert trained(tmp_path, job, params, {}, crafts=False) == ""
    assert_oracles_model({name: tmp_path / name / "state" for name in PARTIES}, HERE.oracle(params))
    document = audited(tmp_path)
    holder, feature = document.parties[HOLDER], document.parties[B]
    assert holder.marks_read is not None
    for figures in holder.marks_read.values():
        assert (figures.read, figures.given, figures.reasons) == (None, None, {"marks": HONEST})
    assert holder.room == feature.room
    assert feature.room is not None
    widths = 33 + 8 + 31 + 8 + 9  # bits of 2^32 and 2^30, of 150 records, and signs
    assert feature.room.sum_bits == widths
    if job.get("scheme") == "lattice":
        assert widths < feature.room.query_bits < 2 * widths
    else:
        assert (feature.room.query_bits, feature.room.sums) == (511, 510 // widths)
    assert f"{widths} bits a sum, {feature.room.query_bits} of " in said(document, tmp_path)


@pytest.mark.parametrize(("records", "accused"), [(CHANCE, False), (CHANCE + 1, True)])
def test_a_few_records_of_odd_weights_accuse_nobody(records: int, accused: bool) -> None:
    """Beside weights of 1 a single other one gives bits of its own, in the first tree."""
    figures = MarkedCells(
        trees=1, marks=31, records=records, read=None, given=None, seconds=0.0, reasons={"links": "?"}
    )
    assert ("marked" in mark_words(B, figures)) == accused
    values = np.full((5, 2), 1 << 31, dtype=np.int64)
    values[2, 0] = round(0.3 * (1 << 31))
    (of_g, of_h) = marks_of(values)
    assert (set(of_g.tolist()), set(of_h.tolist())) == ({-1, 2}, {-1})


@pytest.mark.parametrize("subsample", [1.0, 0.6])
def test_marks_are_within_bounds_and_of_all_records(subsample: float) -> None:
    """Of every sum the low bits are those of its marked records; the rest is g and h, rounded."""
    params = BoostingParams(n_estimators=8, max_depth=2, max_bin=8, subsample=subsample)
    rounds, marks = BoostingRounds(params, 2, HERE.y, None), ReverseSum.of(params, 1)
    seen = set[int]()
    for tree in range(8):
        values, _, sampled = rounds.derivatives(tree)
        crafted = marks.crafted(values, tree)
        assert (crafted[~sampled] == 0).all()
        assert (crafted[:, 2] == values[:, 2]).all()
        assert (np.abs(crafted - values)[:, :2] <= 1 << max(marks.spare)).all()
        assert (np.abs(crafted[:, :2]) <= marks.bounds).all()
        assert (crafted[:, 1] >= 0).all()
        side = np.random.default_rng(tree).random(len(values)) < 0.5
        for slot, of_slot in enumerate(marks_of(crafted[sampled])[:2]):
            assert len(of_slot) >= marks.spare[slot]
            total, bits = int(crafted[side, slot].sum()), np.flatnonzero(of_slot >= 0)
            rows = np.flatnonzero(sampled)[of_slot[bits]]
            assert [bool(total >> bit & 1) for bit in bits.tolist()] == side[rows].tolist()
            seen |= set(rows.tolist())
    assert len(seen) == min(150, ANCHORS + 8 * (marks.marks - ANCHORS)) or subsample < 1
