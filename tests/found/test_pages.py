"""No picture can end a command: every scale and picture takes any figures, and verdicts are said before pages."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attacks.documents import made
from tests.attacks.frontiers import frontier, point
from tests.commands.command import treetap
from tests.commands.experiment_documents import experiment, run
from treetap.attacks.report.verdict import bar
from treetap.lab.experiment import audited, defence_points
from treetap.lab.experiment import frontier as frontier_run
from treetap.lab.experiment.defence_rows import TrainingResult
from treetap.lab.experiment.frontier import html, picture, print_frontier
from treetap.lab.experiment.page import html as experiment_html
from treetap.lab.experiment.panels import of_guesses
from treetap.lab.experiment.recommended import recommend
from treetap.pages.page import drawn
from treetap.pages.pictures import Frame, Linear, Log, Scale, dots, heat, lines, percent
from treetap.pages.section import Table
from treetap.privacy.frontiers import FrontierDocument, Measured, MeasuredAlone

ODD = (0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, 5e-324, 1e-310, 1e308, -1e308, 1e16, 1e16 + 2, 1 + 2e-16)
FIGURES = st.one_of(st.sampled_from(ODD), st.floats(), st.integers(-3, 3).map(float))


@given(FIGURES, FIGURES, FIGURES, st.booleans())
def test_every_scale_has_a_place_for_every_figure(low: float, high: float, value: float, whole: bool) -> None:
    """Ends in any order, none, infinite or the same: places and few ticks lie between the ends of the line."""
    scales: list[Scale] = [Linear(low, high, 54, 428, whole=whole), Linear(low, high, 208, 14), Log(low, high, 54, 428)]
    frame = Frame.linear((440, 300), (low, high), (high, value), ("x", "y"), whole=whole)
    for scale in (*scales, frame.x, frame.y):
        ticks = scale.ticks()
        assert len(ticks) <= (330 if isinstance(scale, Log) else 12)
        for place in (scale(value), scale(low), *(float(tick.at) for tick in ticks)):
            assert 13.9 <= place <= 428.1
    for written in (percent(value, high), heat(value, high)):
        assert 0 <= float(written) <= 100


@given(st.lists(st.lists(st.one_of(st.none(), FIGURES), max_size=5), max_size=3), FIGURES)
def test_lines_and_dots_leave_out_what_is_no_figure(series: list[list[float | None]], top: float) -> None:
    """No series, none with a figure, one point: what has a place is drawn, and nothing else."""
    looks = {(str(k), "graph"): values for k, values in enumerate(series)}
    found = lines(looks, Table([""], []), ("k", "V"), "", "", top=top)
    assert len(found.curves) == sum(any(it is not None and math.isfinite(it) for it in values) for values in series)
    placed = dots([("graph", it) for values in series for it in values], limit=top)
    assert not re.search("nan|inf", repr([*found.curves, *found.frame.x.ticks(), *found.frame.y.ticks(), placed]))


MEASURED = st.builds(Measured, mean=st.one_of(st.none(), FIGURES), sd=st.one_of(st.none(), FIGURES))


@settings(max_examples=15)
@given(st.lists(st.tuples(MEASURED, MEASURED), max_size=4), MEASURED, st.floats(0, 1), st.floats(0, 1))
def test_every_frontier_has_its_page(
    points: list[tuple[Measured, Measured]], alone: Measured, before: float, apart: float
) -> None:
    """Whatever was measured, the sentence, the tables and the pictures are made."""
    few = [point("id_lmid", {"xi": 0.1 * (k + 1)}, 0.9, 0.3) for k in range(len(points))]
    document = frontier(
        *(
            it.model_copy(update={"auc": auc, "gain": auc, "added": added})
            for it, (auc, added) in zip(few, points, strict=True)
        )
    )
    document = document.model_copy(
        update={"alone": MeasuredAlone(auc=alone, accuracy=alone), "before": Measured(mean=before)}
    )
    document = document.model_copy(
        update={"recommended": recommend(document.points, document.alone, before, "bank", apart)}
    )
    assert not re.search(r'="[^"]*\b(nan|inf)\b', picture(document))
    assert "What to take" in html(document)


def _worse(*, without: float, points: tuple[float, ...], alone: float) -> FrontierDocument:
    """A frontier with these AUCs."""
    every = [point("id_lmid", {"xi": 1.0 / (k + 1)}, auc, 0.5 - 0.1 * k) for k, auc in enumerate(points)]
    document = frontier(*every)
    first = document.points[0].model_copy(
        update={"auc": Measured(mean=without), "gain": Measured(mean=without - alone)}
    )
    document = document.model_copy(
        update={
            "points": [first, *every],
            "alone": MeasuredAlone(auc=Measured(mean=alone), accuracy=Measured(mean=None)),
        }
    )
    return document.model_copy(update={"recommended": recommend(document.points, document.alone, 0.2, "bank")})


@pytest.mark.parametrize(
    ("without", "points", "alone"),
    [(0.891, (), 0.917), (0.891, (0.88, 0.6), 0.917), (0.5, (0.5,), 1.0), (0.9, (0.9, 0.9), 0.9), (0.0, (), 1.0)],
)
def test_where_no_point_is_better_than_alone_the_page_says_train_alone(
    without: float, points: tuple[float, ...], alone: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of each picture all points and the label holder alone are on the axis."""
    document = _worse(without=without, points=points, alone=alone)
    print_frontier(document)
    assert "train alone" in " ".join(capsys.readouterr().out.split())
    assert "train alone" in html(document)
    panel = of_guesses(document)
    assert panel.beyond == 0
    assert panel.alone is not None
    assert all(panel.frame.left <= float(x) <= float(panel.alone) for _, points in panel.series for x, *_ in points)


def _noise(folder: Path) -> Path:
    """The file of a frontier of 200 records, whose partner has 30 columns of noise."""
    draw = np.random.default_rng(0)
    x, noise = draw.normal(size=200), draw.normal(size=(200, 30))
    labels = (x + 0.5 * draw.normal(size=200) > 0).astype(int)
    rows = [f"{a},{','.join(map(str, row))},{label}" for a, row, label in zip(x, noise, labels, strict=True)]
    (folder / "t.csv").write_text("\n".join([",".join(["x", *(f"n{k}" for k in range(30)), "y"]), *rows]) + "\n")
    (folder / "e.toml").write_text(
        '[data]\npath = "t.csv"\nlabel = "y"\n[[party]]\nname = "bank"\nlabels = true\ncolumns = ["x"]\n'
        '[[party]]\nname = "telco"\nshare = 1.0\n[job]\nn_estimators = 10\nmax_depth = 4\n'
        '[[defence]]\nid_lmid = { xi = 1.0 }\n[audit]\nattacks = ["uni"]\nsettings = {starts = 1}\n'
    )
    return folder / "e.toml"


@pytest.mark.second_tier
def test_a_frontier_of_noise_ends_with_its_advice(tmp_path: Path) -> None:
    """Alone is better, and the table, the advice and the page are there."""
    done = treetap("frontier", _noise(tmp_path), folder=tmp_path)
    assert (done.status, "Traceback" in done.err) == (0, False), done.err
    assert "train alone" in " ".join(done.out.split())
    assert (tmp_path / "runs" / "e" / "frontier.html").is_file()


#: What a training came to, which no document is made of.
TRAINED = TrainingResult(
    test={"none": {"auc": None}}, v_measure={}, measure="AUC", guesses={}, cells={}, unread={}, classes=2,
    local_subtrees=0, hidden_nodes=0, ciphertexts={}, records={},
)  # fmt: skip


@pytest.mark.parametrize("as_json", [True, False])
def test_a_verdict_is_said_before_its_page(
    as_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While the page is drawn the document is on disk and the answer printed; the command ends as it would."""
    said: list[str] = []

    def draws(_: FrontierDocument) -> str:
        said.append(capsys.readouterr().out)
        assert (tmp_path / "kept" / "frontier.json").is_file()
        raise OverflowError("cannot convert float infinity to integer")

    document = _worse(without=0.8, points=(), alone=0.9)
    monkeypatch.setattr(defence_points, "trained", lambda *_: TRAINED)
    monkeypatch.setattr(frontier_run, "document", lambda *_: document)
    monkeypatch.setattr(frontier_run, "html", draws)
    frontier_run.run_file(
        _noise(tmp_path), as_json=as_json, trainer="centralised", workdir=tmp_path / "kept", resume=None
    )
    assert "train alone" in " ".join(said[0].split())
    left = capsys.readouterr()
    assert (left.out, left.err.count("frontier.html: could not be drawn")) == ("", 1)


def test_a_fault_in_a_picture_costs_the_page_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names the file; the document is there; what is interrupted is no fault."""

    def fails(*_: Any) -> str:
        raise ValueError("math domain error")

    assert drawn(tmp_path / "p.html", lambda: "<p>") == "<p>"
    monkeypatch.setattr("treetap.attacks.report.html", fails)
    monkeypatch.setattr("treetap.attacks.audit.audit", lambda *_, **__: made(trees=1))
    assert audited.run_audit(tmp_path, None, by_tree=False)["protocol"] == "boosting"  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["audit.json"]
    (line,) = [it for it in capsys.readouterr().err.splitlines() if "drawn" in it]
    assert line.startswith(f"{tmp_path / 'audit.html'}: could not be drawn")
    assert "ValueError: math domain error" in line

    def stopped() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drawn(tmp_path / "p.html", stopped)


@settings(max_examples=10)
@given(st.lists(st.one_of(st.none(), FIGURES), min_size=1, max_size=4), FIGURES)
def test_every_experiment_has_its_page(values: list[float | None], gain: float) -> None:
    """Rounds, importances and seconds of any size; what is undefined is left out."""
    history = [{"train_auc": it, "validation_auc": it} for it in values]
    importance = [{"party": "lab", "feature": "b", "weight": 1, "gain": gain, "cover": 1.0}]
    page = experiment_html(experiment(), "exp", [run(history=history, importance=importance)])
    assert not re.search(r'(d|width|points)="[^"]*\b(nan|inf)\b', page)


@given(st.floats(0, 100), st.floats(0, 100))
def test_a_bar_has_its_length(before: float, gained: float) -> None:
    """Whatever rounding does."""
    assert len(bar(before, gained)) == 24
