"""The verdicts of an audit of a real job, and that the document, the terminal and the page say the same of them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from markupsafe import escape

from tests.attacks.present import present
from tests.attacks.recorded import federated, laid_out
from tests.commands.command import treetap_here
from tests.trainings import policies
from tests.worlds import FOUR, Tables, spec
from treetap.attacks import audit_file
from treetap.attacks.audit import audit
from treetap.attacks.document import Document, parse
from treetap.attacks.report.page import html, print_verdict
from treetap.attacks.report.verdict import lines, short_form
from treetap.attacks.verdict import WORDS, Verdict
from treetap.lab.local_federation import to_toml
from treetap.pages.section import Section
from treetap.terminal import PlainConsole
from treetap.trees.params import BoostingParams

HOLDER, B, C, D = FOUR
RECORDS = 300
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=4, min_child_weight=0.0)
pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")


def _tables() -> Tables:
    """One party's columns are noise, another's nearly tell the label, and of the last one's many few are ever split."""
    draw = np.random.default_rng(3)
    y = (draw.random(RECORDS) < 0.5).astype(np.int64)
    blocks = {
        HOLDER: np.stack([y + draw.normal(0, 0.3, RECORDS)], axis=1),
        B: draw.normal(size=(RECORDS, 1)),
        C: np.stack([y + draw.normal(0, 0.25, RECORDS), draw.normal(size=RECORDS)], axis=1),
        D: np.stack([y + draw.normal(0, 0.27, RECORDS), *draw.normal(size=(14, RECORDS))], axis=1),
    }
    tables: Tables = {}
    for number, (name, block) in enumerate(blocks.items()):
        order = np.roll(draw.permutation(RECORDS), number)
        names = [f"{name[-1]}{j}" for j in range(block.shape[1])]
        content: dict[str, Any] = {"id": [f"r{i:05d}" for i in order]}
        content |= {column: block[order, j] for j, column in enumerate(names)}
        if name == HOLDER:
            content["y"] = y[order]
        tables[name] = (names, {"train": pa.table(content), "predict": pa.table(content)})
    return tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parties' states and tables after a training, and the file of an audit in both directions."""
    place, tables = tmp_path_factory.mktemp("verdicts"), _tables()
    job = spec(PARAMS, len(FOUR), key_bits=512, obfuscation="standard")
    allowed = policies(job)
    allowed[HOLDER] = allowed.get(HOLDER, {}) | {"people": {"record_sums": True}}
    laid_out(place, federated(place / "federation", tables, job, policies=allowed), tables)
    content = {
        "label": {"path": f"{HOLDER}.parquet", "column": "y"},
        "party": [
            {"name": name, "transcript": name, "table": f"{name}.parquet"}
            | ({} if name == HOLDER else {"columns": tables[name][0]})
            for name in FOUR
        ],
        "victim": [{"name": name, "truth": f"{name}.parquet"} for name in (C, D)],
    }
    (place / "audit.toml").write_text(to_toml(content))
    return place


@pytest.fixture(scope="module")
def document(folder: Path) -> Document:
    """The audit of it."""
    return audit(audit_file.read(folder), by_tree="few", progress=lambda *_: None)


@pytest.mark.second_tier
def test_each_word_but_little_occurs(document: Document) -> None:
    """The party of noise learns the labels, those that nearly had them nothing; columns are read by a few left sets,
    of which places tell more than bins."""
    words = {(it.party, it.learned, it.of): it.word for it in document.verdicts}
    assert words == {
        (B, "labels", HOLDER): "severe",
        (C, "labels", HOLDER): "nothing found",
        (D, "labels", HOLDER): "nothing found",
        (HOLDER, "columns", C): "severe",
        (HOLDER, "columns", D): "notable",
        (HOLDER, "columns", B): "not measured",
    }
    assert {it.word for it in document.verdicts} == {*WORDS, "not measured"} - {"little"}


@pytest.mark.second_tier
def test_no_verdict_is_below_what_needs_no_training(document: Document) -> None:
    """Own columns, the most frequent class and, of columns, the most frequent bin; nor below any attack's figure."""
    for it in document.verdicts:
        if it.before is None:
            continue
        assert it.after is not None
        assert it.after >= it.before
        if it.learned == "columns":
            read = document.columns_read[it.of]
            assert it.after >= max(way.placed for way in (read.left_sets, read.together) if way is not None)
            continue
        party = document.parties[it.party]
        classes = present(party.trees[0].nodes[0].classes)
        known = present(party.known_labels)
        orders = [
            it
            for result in (present(known.first_component), known.vote)
            if result is not None
            for it in result.by.items()
        ]
        alone = [order.accuracy or 0.0 for kind, order in orders if kind.startswith("columns")]
        alone += [max(classes) / sum(classes), present(present(known.known_regression).columns).accuracy.mean]
        alone += [party.attacks["cl"].accuracy or 0.0]
        assert it.before >= max(alone)
        told = [order.accuracy or 0.0 for kind, order in orders if not kind.startswith("columns")]
        told += [present(known.known_regression).nodes.accuracy.mean]
        told += [each.accuracy for each in party.attacks.values() if each.accuracy is not None]
        assert it.after >= max(told)
        # a party without a gain is not said to have one
        assert (it.word == "nothing found") == (present(it.low) <= 0)


@pytest.mark.second_tier
def test_terminal_page_and_json_say_the_same(document: Document) -> None:
    """Each sentence, word and gain; the page has the verdict before anything else, and fingerprints at its foot."""
    out = io.StringIO()
    print_verdict(document, PlainConsole(file=out, width=200))
    printed = " ".join(out.getvalue().split())
    content = document.plain()
    content["parties"][B]["signed"] = "signed up to record 97"
    page = html(content).replace("&#160;", " ")
    there = json.loads(json.dumps(document.plain()))["verdicts"]
    assert [Verdict.model_validate(it) for it in there] == document.verdicts == parse(document.plain()).verdicts
    for it in lines(document.verdicts):
        assert it.head in printed
        for said in [row.said for row in it.figures] or [it.gain]:
            assert " ".join(said.split()) in printed
        assert f'<span class="word">{it.word}</span> <bdi>{it.party}</bdi>' in page
        assert (gain := escape(it.gain)) in page
        assert page.index(gain) < page.index("<nav") < page.index("Attacks on the labels")
        assert f'id="{it.details}"' in page
    assert page.index("<footer>") < page.index("signed up to record")
    assert len(Section("", short_form(document)).shown("terminal")) <= 2 + 6 * len(document.verdicts)


@pytest.mark.second_tier
def test_the_command_prints_the_verdict_and_the_rest_on_demand(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last line is where the report is."""
    assert treetap_here("audit", str(folder), "--last-tree-only") == 0
    short = capsys.readouterr().out.splitlines()
    assert short[0] == "What each side learned:"
    assert "V-measure" not in "".join(short)
    assert short[-1].startswith("report: ")
    assert treetap_here("audit", str(folder), "--last-tree-only", "--details") == 0
    assert "V-measure" in capsys.readouterr().out
    assert treetap_here("audit", str(folder), "--last-tree-only", "--every-tree") == 2
