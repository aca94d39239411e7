"""The audit of a PIVODL job as a document, a page and in the terminal; other jobs' documents are as before."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.attacks.documents import made
from tests.attacks.pivodl import PARAMS, shared_world, trained
from tests.attacks.recorded import transcript
from tests.commands.command import refused, treetap
from tests.worlds import World, spread, world
from treetap.attacks.audit import audit
from treetap.attacks.audit_file import AuditFile
from treetap.attacks.document import PIVODL_ATTACKS, Document, parse
from treetap.attacks.files import AuditedParty, LabelTable
from treetap.attacks.limits import exceeded
from treetap.attacks.registry import Needs, rows
from treetap.attacks.report import html, print_summary
from treetap.errors import BadInput
from treetap.lab.experiment.audited import scores
from treetap.trees.pivodl_params import PivodlParams

KINDS: dict[str, dict[str, Any]] = {
    "numbers": {"objective": "reg:squarederror", "epsilon": 8.0},
    "three classes": {"objective": "multi:softprob", "classes": ("0", "1", "2"), "epsilon": 8.0},
    "as published": {"as_published": True},
    "no split": {"gamma": 1e6},
}
pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> AuditFile:
    """What an auditor has of a small job with noise: transcripts and tables of all four parties."""
    here = shared_world(200)
    return _file(tmp_path_factory.mktemp("audited"), here, replace(PARAMS, n_estimators=2, epsilon=8.0))


def _file(folder: Path, here: World, params: PivodlParams) -> AuditFile:
    """Train, and write the labels and the parties' tables."""
    states = trained(folder / "federation", here, params)
    ids = [f"r{i:05d}" for i in range(len(here.y))]
    pq.write_table(pa.table({"id": ids, "y": here.y}), folder / "labels.parquet")
    parties = []
    for name, (columns, tables) in here.tables.items():
        path = folder / f"{name}.parquet"
        pq.write_table(tables["train"], path)
        parties.append(AuditedParty(name=name, transcript=transcript(states, name), table=path, columns=list(columns)))
    return AuditFile(label=LabelTable(path=folder / "labels.parquet", column="y"), party=parties, attacks=["uni", "cl"])


@pytest.fixture(scope="module")
def document(file: AuditFile) -> Document:
    """The audit of it."""
    return audit(file, by_tree=False, progress=lambda *_: None)


@pytest.mark.second_tier
def test_the_document_has_the_attacks_under_each_party(document: Document) -> None:
    """All four parties are audited, the first one too; the document survives JSON."""
    plain = document.plain()
    assert plain["protocol"] == "pivodl"
    assert plain["label_holder"] == ", ".join(plain["parties"])
    assert len(plain["parties"]) == 4
    for party in plain["parties"].values():
        assert set(PIVODL_ATTACKS) <= set(party)
        assert party["label_guess"]["records"] <= party["label_guess"]["others"]
    accuracies = [party["label_guess"]["accuracy"] for party in plain["parties"].values()]
    assert any(accuracy is not None for accuracy in accuracies)
    assert parse(json.loads(json.dumps(plain))) == document


@pytest.mark.second_tier
def test_an_experiment_has_them_by_party(document: Document) -> None:
    """Under `audit.<party>`, beside the attacks of every audit."""
    plain = document.plain()
    for name, found in scores(plain).items():
        assert found["label_guess"]["accuracy"] == plain["parties"][name]["label_guess"]["accuracy"]
        assert set(found) == {"uni", "cl", *rows(Needs.KNOWN_LABELS), *PIVODL_ATTACKS}


@pytest.mark.second_tier
def test_a_limit_on_the_guess(document: Document) -> None:
    """Each party above it is named with the stronger way; documents of other protocols have no guess."""
    aucs = {}
    for name, party in document.parties.items():
        assert party.label_guess is not None
        ways = [party.label_guess, party.label_guess.after_inversion]
        raw = [*party.label_guess.auc_by_tree, *(each.auc for each in ways if each is not None)]
        found = [max(auc, 1 - auc) for auc in raw if auc is not None]
        aucs |= {name: max(found)} if found else {}
    lines = exceeded(document, {"label_guess": 0.5})
    assert [line.split(":")[0] for line in lines] == [name for name, auc in aucs.items() if auc > 0.5]
    assert all(f"{aucs[line.split(':')[0]]:.3f}" in line for line in lines)
    assert exceeded(document, {"label_guess": 1.0}) == []
    with pytest.raises(BadInput, match="not of pivodl"):
        exceeded(made(), {"label_guess": 0.5})


def test_documents_of_other_protocols_have_no_such_key() -> None:
    """And the page has no such section."""
    other = made()
    for party in other.plain()["parties"].values():
        assert not set(PIVODL_ATTACKS) & set(party)
    assert "Labels of other parties" not in html(other)


@pytest.mark.second_tier
def test_page_and_terminal_show_the_figures(document: Document) -> None:
    """Every figure of a guess and of what is disclosed is in both, and each way to guess has its dot."""
    page, out = html(document), io.StringIO()
    print_summary(document, Console(file=out, width=200))
    section = page[page.index('id="shared"') : page.index('id="bounds"')]
    for name, party in document.parties.items():
        assert name in section
        guess, counts = party.label_guess, party.disclosed
        assert guess is not None
        assert counts is not None
        shown = [guess, guess.without_noise, guess.after_inversion, guess.own_labels_and_spaces]
        aucs = [each.auc for each in shown if each is not None and each.auc is not None]
        figures = [f"{auc:.3f}" if auc >= 0.5 else f"{1 - auc:.3f} (inverted)" for auc in aucs]
        for figure in [*figures, f"{counts.bins:,}", f"{counts.continuing_ids:,}"]:
            assert figure in section
            assert figure in out.getvalue()
    assert section.count("<circle") >= sum(
        party.label_guess is not None and party.label_guess.auc is not None for party in document.parties.values()
    )


@pytest.mark.second_tier
def test_the_command_runs_one_attack(file: AuditFile, document: Document, sound: Path) -> None:
    """`treetap attack` prints one party's figures, those of the document; of another protocol's job it says so."""
    one = file.party[1]
    assert file.label is not None
    assert one.table is not None
    scored = ("--labels", file.label.path, "--label", "y", "--columns", one.table)
    used = [word for column in one.columns or [] for word in ("--use", column)]
    found = treetap("attack", "gain_inversion", one.transcript, "--json", *scored, *used)
    assert found.status == 0, found.err
    report, expected = json.loads(found.out), document.plain()["parties"][one.name]["gain_inversion"]
    assert report["party"] == one.name
    assert {key: report[key] for key in expected} == expected
    shown = treetap("attack", "label_guess", one.transcript, *scored, *used)
    assert shown.status == 0, shown.err
    assert "as source accuracy" in shown.out
    assert "is one of boosting" in refused(treetap("attack", "disclosed", sound, "--party", "feature-b"))
    assert "leave it out" in refused(
        treetap("attack", "disclosed", one.transcript, "--out", one.table.with_suffix(".out"))
    )


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("kind", KINDS)
def test_jobs_of_every_kind_are_audited(kind: str, tmp_path: Path) -> None:
    """What does not apply to a job is null or none, and the page is made."""
    changes: dict[str, Any] = KINDS[kind]
    params = replace(PARAMS, n_estimators=2, max_depth=2, max_bin=4, **changes)
    classes = 3 if kind == "three classes" else 2
    here = world(90, (2, 2, 2), objective=params.objective, classes=classes, seed=3)
    here = spread(here, np.random.default_rng(1).integers(0, 3, 90))
    document = audit(_file(tmp_path, here, params), by_tree=False, progress=lambda *_: None)
    assert html(document)
    for name, party in document.parties.items():
        guess, inversion, counts = party.label_guess, party.gain_inversion, party.disclosed
        assert guess is not None
        assert inversion is not None
        assert counts is not None
        assert inversion.possible == (kind in ("as published", "no split"))
        assert (guess.auc is not None) == (guess.records > 0 and inversion.possible)
        own = len(here.ownership.get(name, []))
        assert counts.bins == (0 if params.as_published else 4 * own)
        assert (counts.listed > 0) == (params.as_published)
