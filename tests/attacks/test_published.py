"""What a published model tells of records of its training: planted members, bounds of work, words, bad input."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import treetap
from tests.commands.command import refused
from tests.commands.command import treetap as command
from tests.published import write_files, write_job
from treetap.attacks.intruder import intrude
from treetap.attacks.limits import exceeded_by_published, parse
from treetap.attacks.published import model as shadow_models
from treetap.attacks.published.membership import class_shares, found_at, likelihood_ratios, member_columns
from treetap.attacks.published.model import Bounds, Intruder, Target
from treetap.attacks.published.schema import PublishedDocument
from treetap.attacks.report.verdict import intruder_report, lines
from treetap.errors import BadInput
from treetap.lab.audit.audited import read_target
from treetap.lab.audit.options import PublishedOptions
from treetap.models.store import MODEL_FORMAT, TREES
from treetap.pages.section import Section, Table
from treetap.trees.metrics import auc

SHADOWS, N = 16, 600
PARTIES = {"bank": ["x0", "x1", "town"], "telco": ["x2", "x3"]}
#: A model that fits its records, one that hardly can, and one that was trained on none of the table's.
DEEP, SHALLOW = {"n_estimators": 40, "max_depth": 6}, {"n_estimators": 3, "max_depth": 2}


def records(count: int, *, noise: float, seed: int = 0) -> pd.DataFrame:
    """A table of which the label follows from two columns, of both parties, and noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4))
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(4)], index=[f"r{seed}-{i:05d}" for i in range(count)])
    frame.loc[frame.index[::17], "x1"] = np.nan
    frame["town"] = rng.choice(["aa", "bb", "cc"], count)
    frame["bought"] = np.where(x[:, 0] + x[:, 2] + noise * rng.normal(size=count) > 0, "yes", "no")
    return frame.rename_axis("id")


def trained(folder: Path, frame: pd.DataFrame, **params: Any) -> Path:
    """The shards of a model of these records."""
    model = treetap.FederatedClassifier(PARTIES, label_holder="bank", encode="auto", simulate=True, **params)
    return Path(model.fit(frame.drop(columns="bought"), frame["bought"]).save(folder / "model"))


def written(folder: Path, frame: pd.DataFrame, members: int) -> Path:
    """The table of an intruder, whose first records are of the training."""
    path = folder / "records.csv"
    frame.assign(member=np.where(np.arange(len(frame)) < members, "yes", "no")).to_csv(path)
    return path


def target(folder: Path, table: Path) -> Target:
    return read_target(folder, table, PublishedOptions(label="bought"))


def audited(it: Target, bounds: Bounds | None = None) -> PublishedDocument:
    return intrude(it, lambda *_: None, bounds)


def words(document: PublishedDocument, learned: str) -> list[str]:
    return [it.word for it in document.verdicts if it.learned == learned]


def planted(strength: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two statistics, of which training on a record moves the first, but not of all records as much; a third stays."""
    members = rng.permutation(N) < N // 2
    halves = [rng.permutation(N) < N // 2 for _ in range(SHADOWS // 2)]
    inside = np.array([side for half in halves for side in (half, ~half)])
    place, moved = rng.normal(size=(N, 2)) * 3, strength * rng.exponential(size=N)

    def model(side: np.ndarray) -> np.ndarray:
        noise = rng.normal(size=(N, 2))
        first = place[:, 0] + moved * side + noise[:, 0]
        return np.stack([first, place[:, 1] + 0.9 * noise[:, 0] + 0.4 * noise[:, 1], np.full(N, 7.0)], axis=1)

    return model(members), np.array([model(side) for side in inside]), inside, members


@pytest.mark.parametrize(("strength", "least", "most"), [(0.0, 0.43, 0.57), (1.0, 0.78, 1.0)])
def test_ratios_find_planted_members(strength: float, least: float, most: float) -> None:
    """As well as correlated noise allows, which the second statistic tells: the first alone says less."""
    observed, shadows, inside, members = planted(strength, np.random.default_rng(3))
    both = auc(likelihood_ratios(observed, shadows, inside), members)
    assert least <= both <= most
    if strength:
        assert both > auc(likelihood_ratios(observed[:, :1], shadows[:, :, :1], inside), members) + 0.03
    alone = likelihood_ratios(observed[:, 2:], shadows[:, :, 2:], inside)
    assert not alone.any()  # what never changes tells nothing


def test_found_at_one_percent() -> None:
    """At most one in a hundred of the others passes; a threshold that many share is above all of them."""
    members = np.arange(400) < 200
    values = np.where(members, 5.0, 0.0)
    values[200:202] = 9.0
    assert found_at(values, members) == 1.0
    values[202] = 9.0
    assert found_at(values, members) == 0.0


def test_a_column_is_guessed_from_others() -> None:
    """By a classifier; each bin keeps a chance, and where a value lies may be told by its absence."""
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=600)
    others = np.stack([np.where(codes == 2, np.nan, codes + rng.normal(0, 0.1, 600)), rng.normal(size=600)], axis=1)
    shares = class_shares(others[:400], codes[:400], others[400:], 4)
    assert (shares.argmax(axis=1) == codes[400:]).mean() > 0.95
    assert np.allclose(shares.sum(axis=1), 1)
    assert (shares > 0).all()


@pytest.fixture(scope="module")
def overfitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, PublishedDocument]:
    """The model and the table of an overfitted training, and its audit."""
    folder = tmp_path_factory.mktemp("overfitted")
    frame = records(400, noise=1.0)
    model, table = trained(folder, frame[:200], **DEEP), written(folder, frame, 200)
    return model, table, audited(target(model, table))


@pytest.mark.second_tier
def test_an_overfitted_model_is_found(overfitted: tuple[Path, Path, PublishedDocument]) -> None:
    """By answers and export, not by the card; with both published, columns come out of the score."""
    document = overfitted[2]
    assert [it.artefact for it in document.membership] == ["card", "answers", "export"]
    assert words(document, "members") == ["nothing found", "severe", "severe"]
    card, answers, export = document.membership
    assert card.low < 0.5 < card.high
    assert answers.low > 0.65
    assert export.auc > 0.65
    assert answers.found_low <= answers.found <= answers.found_high
    assert words(document, "columns") == ["not measured", "severe", "severe", "severe"]
    by_score = {it.column: it for it in document.member_columns if it.artefact == "export and answers"}
    assert set(by_score) == {"the label", "x0", "x1", "x2", "x3", "town"}
    assert by_score["town"].compared.reached > 0.9 > by_score["town"].compared.before + 0.4
    numbers = [it for it in document.member_columns if it.kind == "number"]
    assert {it.compared.measure for it in numbers if it.column == "x0"} == {"accuracy", "explained"}
    assert min(it.compared.reached for it in numbers if it.artefact == "export and answers") > 0.5
    assert (document.shadow_models, document.records, document.left_out) == (16, 400, 0)


@pytest.mark.second_tier
@pytest.mark.campaign(but=1)
@pytest.mark.parametrize(
    ("params", "count", "noise"), [(SHALLOW, 8000, 0.0), (DEEP, 0, 1.0)], ids=["few shallow trees", "other records"]
)
def test_nothing_is_found(params: dict[str, Any], count: int, noise: float, tmp_path: Path) -> None:
    """Of a large training without noise by few shallow trees; nor by a deep model that was trained on other records."""
    frame = records(count + 600, noise=noise)
    model = trained(tmp_path, frame[: count + 300] if count else records(200, noise=noise, seed=1), **params)
    document = audited(target(model, written(tmp_path, frame[count:], 300)), Bounds(shadows=8))
    assert set(words(document, "members")) == {"nothing found"}
    for it in document.membership:
        assert it.low < 0.5 < it.high, it


@pytest.mark.second_tier
@pytest.mark.campaign
def test_halves_that_differ_are_no_leak(tmp_path: Path) -> None:
    """Who was in the training then shows in the columns, without any artefact."""
    frame = records(600, noise=1.0)
    frame.loc[frame.index[:300], "x3"] += 1.0
    model = trained(tmp_path, records(200, noise=1.0, seed=1), **DEEP)
    document = audited(target(model, written(tmp_path, frame, 300)), Bounds(shadows=4))
    assert set(words(document, "members")) == {"nothing found"}
    assert min(it.compared.before for it in document.membership) > 0.65
    assert "the records' own columns" in document.membership[0].compared.before_how


@pytest.mark.second_tier
@pytest.mark.campaign
def test_bounds_hold(overfitted: tuple[Path, Path, PublishedDocument]) -> None:
    """Of a table too large records are left out, and the report says so; a model too large is refused."""
    it = target(*overfitted[:2])
    many = it.take(np.tile(np.arange(len(it.members)), 10))
    # as slow as the machine is: the first one loads what a training needs
    took = [shadow_models._seconds(many.take(np.arange(500)), np.arange(250)) for _ in range(3)]
    seconds = 20 * max(took[1:])
    document = audited(many, Bounds(shadows=6, seconds=seconds))
    assert document.seconds < document.most_seconds == seconds
    assert document.shadow_models <= document.most_shadow_models == 6
    assert document.left_out == 4000 - document.records > 0
    assert f"{document.left_out:,} further records of the table are left out" in document.knew[0]
    with pytest.raises(BadInput, match=r"takes \d+ seconds, so that 4 do not fit into the 0\.01 seconds"):
        audited(it, Bounds(seconds=0.01))


def test_no_column_begins_late(small: Path) -> None:
    """Once time is short the columns that are left are named, the label first."""
    it = target(small / "model", small / "records.csv")
    late = Intruder(it, np.zeros((0, 60), dtype=bool), {}, Bounds(seconds=2.0), begun=-1e9)
    assert member_columns(late) == []
    ((what, why),) = late.reasons.items()
    assert what.startswith("columns the label, ")
    assert {"x0", "x1", "x2", "x3", "town"} < set(what.replace(",", "").split())
    assert why == "the 2 seconds of this audit had passed"


@pytest.mark.second_tier
def test_all_forms_say_the_same(small: Path) -> None:
    """Terminal, page and JSON, under three headings; status 1 above a limit."""
    model = small / "model"
    asked = ("audit", "--model", model, "--table", small / "records.csv", "--label", "bought")
    done = command(*asked, "--details", "--document", model / "it.json", "--fail-above", "membership=0")
    assert done.status == 1
    assert re.search(r"answers: membership reaches an AUC of 0\.\d+, above 0", done.err)
    document = PublishedDocument.model_validate(json.loads((model / "it.json").read_text()))
    assert (model / "intruder.json").read_text() == (model / "it.json").read_text()
    page = (model / "intruder.html").read_text()
    flat, plain = " ".join(done.out.split()), " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())
    for heading in ("Knew", "Tried", "Got"):
        assert f"{heading}\n" in done.out
        assert f">{heading}</h2>" in page
    for sentence in (*document.knew, *document.tried):
        assert sentence in flat
        assert sentence in plain
    for line in lines(document.verdicts):
        assert line.text in flat
        assert line.gain in plain
        assert line.gain in flat
    (got,) = (section for section in intruder_report(document).anchored if section.title == "Got")
    tables = [
        part
        for section in got.parts
        if isinstance(section, Section)
        for part in section.parts
        if isinstance(part, Table)
    ]
    assert len(tables) == 2
    for table in tables:
        for row in table.rows:
            assert all(str(cell) in plain and str(cell) in flat for cell in row), row
    printed = command(*asked, "--json", "--fail-above", "member-columns=1")
    assert printed.status == 0
    own = json.loads(printed.out)
    assert [it["auc"] for it in own["membership"]] == [it.auc for it in document.membership]
    assert own["verdicts"] == [it.plain() for it in document.verdicts]


def test_limits_of_a_published_model(overfitted_shape: PublishedDocument) -> None:
    """Those of transcripts are none of it, and what was not measured cannot be judged."""
    for limit, said in (("any=0.5", "is on transcripts"), ("membership=0.5", "nothing was measured")):
        with pytest.raises(BadInput, match=said):
            exceeded_by_published(overfitted_shape, parse([limit]))


@pytest.fixture
def overfitted_shape() -> PublishedDocument:
    """A document without a figure."""
    return PublishedDocument.model_construct(membership=[], member_columns=[])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and tables that do not go with it."""
    folder = tmp_path_factory.mktemp("small")
    frame = records(60, noise=1.0)
    trained(folder, frame[:40], **SHALLOW)
    table = pd.read_csv(written(folder, frame, 40))
    table.drop(columns="x2").to_csv(folder / "narrow.csv", index=False)
    table.assign(member="yes").to_csv(folder / "members.csv", index=False)
    table.assign(member=["a", "b", "c"] * 20).to_csv(folder / "several.csv", index=False)
    table.assign(bought="maybe").to_csv(folder / "classes.csv", index=False)
    table[:50].to_csv(folder / "few.csv", index=False)
    for name, role in (("pivodl", "party"), ("splitnn", "label_holder")):
        (folder / name).mkdir()
        write_job(folder / name, "s")
        made = {"version": MODEL_FORMAT, "job_digest": "d", "party": "a", "role": role, "protocol": name}
        write_files(folder / name, made, {TREES: []})
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    ("model", "table", "said"),
    [
        ("none", "records", r"--model .*none: there is no such folder"),
        ("empty", "records", "has no model; name a folder of shards"),
        ("pivodl", "records", "protocol 'pivodl' has no joint scores to audit: its leaf weights lie apart"),
        ("splitnn", "records", "protocol 'splitnn' has no joint scores to audit: it is a network"),
        ("model/bank", "records", "the model has parties bank, telco, and these shards are of bank"),
        ("model", "gone", "gone.csv"),
        ("model", "narrow", "has no column 'x2'; it has: id, x0"),
        ("model", "members", "column 'member' has 1 values; it must have two"),
        ("model", "several", "column 'member' has 3 values; it must have two"),
        ("model", "classes", r"holds 'maybe', which is no class of the model"),
        ("model", "few", "40 records of the training and 10 others: give at least 20"),
    ],
)
def test_bad_input_is_named(model: str, table: str, said: str, small: Path) -> None:
    """The model, the table, or its column, with what it must be."""
    with pytest.raises(BadInput, match=said):
        audited(target(small / model, small / f"{table}.csv"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say RUN, or --model FOLDER and --table FILE in its place"),
        (("--model", "m"), "say RUN, or --model FOLDER and --table FILE"),
        (("run", "--model", "m", "--table", "t"), "say RUN, or --model FOLDER"),
        (("--model", "m", "--table", "t", "--every-tree"), "--every-tree is of an audit of transcripts"),
        (("--model", "m", "--table", "t"), "--model m: there is no such folder"),
    ],
)
@pytest.mark.second_tier(but=1)
def test_options_that_do_not_go_together(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """One sentence, and status 2."""
    assert said in refused(command("audit", *words, folder=tmp_path))
