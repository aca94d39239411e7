"""Pages and the words of reports.

No picture can end a command: every scale and picture takes any figures, and verdicts are said before pages.
"""

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
from treetap.attacks.advice.advise import AdvisedJob, advise
from treetap.attacks.id2graph.schema import KnownSettings
from treetap.attacks.known_labels.evidence import SignatureEvidence
from treetap.attacks.known_labels.names import KnownLabels
from treetap.attacks.report.page import html as audit_html
from treetap.attacks.report.verdict import BAR, bar, to_do, told
from treetap.attacks.report.verdict import lines as verdict_lines
from treetap.attacks.verdict import Compared, FirstNamed, Verdict, judged
from treetap.lab.experiment import audited, defence_points
from treetap.lab.experiment import frontier as frontier_run
from treetap.lab.experiment.baselines import CENTRALISED, UNDEFENDED, concluded
from treetap.lab.experiment.command import print_report
from treetap.lab.experiment.experiment_file import TrainingResult
from treetap.lab.experiment.frontier import html, picture, print_frontier
from treetap.lab.experiment.headline import Gain, conclusion, headline
from treetap.lab.experiment.page import html as experiment_html
from treetap.lab.experiment.panels import of_guesses
from treetap.lab.experiment.recommended import recommend, told_apart
from treetap.lab.experiment.results import Defended
from treetap.pages.page import drawn
from treetap.pages.pictures import Frame, Linear, Log, Scale, dots, heat, lines, percent
from treetap.pages.section import Table
from treetap.privacy.frontiers import FrontierDocument, Measured, MeasuredAlone, MeasuredPoint
from treetap.tables.labels import Labels

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
    monkeypatch.setattr("treetap.attacks.report.page.html", fails)
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
    assert len(bar(before, gained)) == BAR


# ---- What a report says and draws follows from what was measured: causes, sources, spreads and scales


LOSS = {"measure": "auc", "together": 0.952, "alone": {"clinic": 0.957}, "low": -0.0102, "high": -0.0003}
DEFENDED = Defended(table={"label_dp": {"epsilon": 1.0}}, parties={}, says=[])


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        ({}, "the columns of lab bring nothing here", "defences"),
        (
            {"defences": DEFENDED, UNDEFENDED: 0.961},
            "defences cost more than the columns bring, 0.961 AUC without",
            "nothing",
        ),
        ({"defences": DEFENDED, UNDEFENDED: 0.951}, "the columns of lab bring nothing here", "defences"),
        ({"defences": DEFENDED}, "the columns of lab bring nothing here", "defences"),
        ({UNDEFENDED: 0.961}, "the columns of lab bring nothing here", "defences"),
        ({"privacy": ["Noise."], CENTRALISED: 0.961}, "noise cost more than the columns bring", "nothing"),
        ({"privacy": ["Noise."], CENTRALISED: 0.95}, "the columns of lab bring nothing here", "noise cost"),
    ],
)
def test_a_loss_has_the_cause_that_was_measured(
    changes: dict[str, Any], said: str, unsaid: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the page and in the terminal: defences where they are on and the same training without them does better."""
    found = run(gain=LOSS)
    rows = {name: {"auc": changes.pop(name)} for name in (UNDEFENDED, CENTRALISED) if name in changes}
    found = run(gain=LOSS, metrics={**found.metrics, **rows}, **changes)
    print_report([found], details=False)
    printed = " ".join(capsys.readouterr().out.split())
    assert "clinic alone 0.957 AUC" in printed
    for text in (concluded([found])[0], printed.partition("┏")[0].partition("Metrics")[0]):
        assert said in text
        assert unsaid not in text.replace(said, "")


def test_the_same_words_for_other_measures() -> None:
    """Of an error less is better; without a loss no cause; several label owners."""
    error = Gain(measure="rmse", together=4.0, alone={"bank": 3.0}, low=-1.2, high=-0.8)
    assert headline([error]) == "Together 4 RMSE, bank alone 3 (gain -1, -1.2 to -0.8: worse than alone)"
    assert "2.5 RMSE without them" in conclusion([error], "bank alone", "telco", ("defences", 2.5))[0]
    assert "bring nothing here" in conclusion([error], "bank alone", "telco", ("defences", 3.5))[0]
    right = Gain(measure="accuracy", together=0.9, alone={"n": 0.8, "s": 0.85}, low=0.02, high=0.09)
    assert headline([right]) == "Together 90.0 % right, s, the best alone, 85.0 % (gain +5.0 points, +2.0 to +9.0)"
    assert "pays" in conclusion([right], "a party alone")[0]


def _verdict(before: float, reached: float, error: float = 0.001, measure: str = "AUC", **more: Any) -> Verdict:
    it = {"measure": measure, "before_how": "own columns", "reached_how": "UNI", "details": "known", "tries": 1}
    found = Compared.model_validate(it | {"before": before, "reached": reached, "error": error, **more})
    return judged("telco", "labels", "bank", [found], reason="", details="known")


@pytest.mark.parametrize(
    ("verdict", "before", "gained"),
    [
        (_verdict(0.5, 0.75), 0, 50),
        (_verdict(0.667, 0.711), 33.4, 8.8),
        (_verdict(0.667, 0.682, error=0.02), 33.4, 0),  # nothing found
        (_verdict(0.45, 0.6), 0, 20),
        (_verdict(0.5, 0.75, measure="accuracy"), 50, 25),
        (_verdict(0.0, 1.0, measure="accuracy"), 0, 100),
    ],
)
def test_bars_begin_at_chance_and_show_what_was_found(verdict: Verdict, before: float, gained: float) -> None:
    """The same in the terminal and on the page."""
    (line,) = verdict_lines([verdict])
    assert (line.before, line.gained) == (pytest.approx(before), pytest.approx(gained))
    assert ["▓" in line for line in told([verdict])[1:3]] == [False, gained > 0]
    page = audit_html(made(trees=1).model_copy(update={"verdicts": [verdict]}))
    width = re.search(r'class="gained" x="[\d.]+" width="([\d.]+)"', page)
    assert width is not None
    assert float(width[1]) == pytest.approx(gained, abs=0.01)


@pytest.mark.parametrize(
    ("error", "before", "after", "said"),
    [
        (0.001, 0.6, 0.6, "no more often"),
        (0.001, 0.6, 0.65, "no more often"),
        (0.001, 0.08, 0.65, "right more often"),
        (0.5, 0.6, 0.6, "no more often"),
        (0.5, 0.08, 0.65, "no more often"),
    ],
)
def test_which_of_two_yardsticks_to_fear(error: float, before: float, after: float, said: str) -> None:
    """The first records and the word never contradict each other without a sentence."""
    first = FirstNamed(first=100, rarest="yes", before=before, after=after, chance=0.21)
    (line,) = verdict_lines([_verdict(0.667, 0.711, error=error, known=40, drawn=0.012, first=first)])
    assert line.notes[-1].endswith(said)
    assert line.gain.endswith("40 labels known, ± 1.2 points by the draw of the 40")


JOB = AdvisedJob("boosting", "bank", ["telco"], 2, {}, "severe", {}, {})


@pytest.mark.parametrize(
    ("whose", "guessed", "said"),
    [
        ("this table", (0.21, 0.5), "it took away 98 %."),
        ("this table", (0.24, 0.22), "it took away at least 90 %."),
        ("this table", (0.2, 0.21), "it took away at least 98 %."),
    ],
)
def test_advice_names_its_table_and_no_setting_that_chance_chose(
    whose: Any, guessed: tuple[float, float], said: str
) -> None:
    """Of settings of one defence that take as much as the spread tells it says what the least one took."""
    points = [point("id_lmid", {"xi": xi}, 0.85, it) for xi, it in zip((0.1, 0.5), guessed, strict=True)]
    document = made(trees=1).model_copy(
        update={"verdicts": [_verdict(0.5, 0.9)], "advice": advise(JOB, (whose, frontier(*points)))}
    )
    _, took, _ = to_do(document)["labels"].splitlines()
    assert took == f"On this very table {said}"


def test_advice_of_another_table_says_so_and_proposes_to_measure() -> None:
    """In the line that people copy."""
    document = frontier(point("label_dp", {"epsilon": 1.0, "stages": 2}, 0.85, 0.3))
    source = advise(JOB, ("this table", document))
    assert source.source is not None
    other = source.model_copy(update={"source": source.source.model_copy(update={"whose": "project"})})
    whole = made(trees=1).model_copy(update={"verdicts": [_verdict(0.5, 0.9)], "advice": other})
    assert to_do(whole)["labels"].splitlines()[1:] == [
        "On bank, a table like yours, it took away 75 %.",
        "Its lines: “What lowers this” in the report.",
        "To try it on yours:",
        "    treetap frontier FILE",
    ]
    several = [point("id_lmid", {"xi": xi}, 0.85, it) for xi, it in ((0.1, 0.42), (0.5, 0.6))]
    wide = [it.model_copy(update={"added": it.added.model_copy(update={"sd": 0.2})}) for it in several]
    document = frontier(*wide)
    swayed = made(trees=1).model_copy(
        update={"verdicts": [_verdict(0.5, 0.9)], "advice": advise(JOB, ("this table", document))}
    )
    assert "it took away 45 %, and chance sways that much." in to_do(swayed)["labels"]


def test_the_draw_of_known_labels_follows_the_ids() -> None:
    """Whatever order an alignment gave the records, the same forty are known."""
    draw = np.random.default_rng(0)
    ids = [f"id-{number}" for number in draw.permutation(300)]
    truth = {name: number % 3 for number, name in enumerate(sorted(ids))}

    def known(order: list[str]) -> list[set[str]]:
        labels = Labels(np.array([truth[name] for name in order]), ["a", "b", "c"])
        evidence = SignatureEvidence([], KnownLabels.of(300, labels, None, order), None, KnownSettings(draws=3))
        return [{order[place] for place in places} for places in evidence.draws]

    assert known(ids) == known(sorted(ids)) == known(ids[::-1])
    by_place = KnownLabels.of(300, Labels(np.array([truth[name] for name in sorted(ids)]), ["a", "b", "c"]), None)
    places = SignatureEvidence([], by_place, None, KnownSettings(draws=3)).draws
    assert [{sorted(ids)[place] for place in some} for some in places] == known(ids)


def _one_seed(*points: MeasuredPoint) -> list[MeasuredPoint]:
    none = Measured(mean=None)
    every = [
        it.model_copy(update={"seeds": [0], "gain": Measured(mean=it.gain.mean)}) for it in frontier(*points).points
    ]
    return [it.model_copy(update={"added": it.added.model_copy(update={"sd": none.sd})}) for it in every]


def test_one_seed_recommends_a_family() -> None:
    """Differences below the spread rank nothing: of the settings of a defence the strictest, its rivals named."""
    loose = point("label_dp + refit", {"epsilon": 1.0, "stages": 2}, 0.86, 0.21)
    strict = point("label_dp + refit", {"epsilon": 0.5, "stages": 2}, 0.85, 0.21)
    rival, far = (
        point("grafting", {"epsilon": 1.0, "stages": 2}, 0.845, 0.21),
        point("id_lmid", {"xi": 0.1}, 0.81, 0.21),
    )
    points = _one_seed(loose, strict, rival, far)
    apart = told_apart(points, 210, 1000)
    assert 0.015 < apart < 0.035
    found = recommend(points, frontier().alone, 0.2, "bank", apart)
    assert found.point == 2
    says = found.says.splitlines()
    assert says[0].endswith(", and repair the leaves (label DP + refit).")
    assert "Not told apart from it: Grafting-LDP, ε 1, stages 2." in says
    assert "ID-LMID" not in found.says
    assert says[-3] == f"Points closer than {apart:.2f} in AUC are not told apart."
    assert says[-1] == "    seed = [0, 1, 2]  # in [data]"
    near = recommend(points, MeasuredAlone(auc=Measured(mean=0.84), accuracy=Measured(mean=None)), 0.2, "bank", apart)
    assert "Not told apart from it: bank alone." in near.says


@pytest.mark.parametrize(
    ("rarest", "test", "apart"), [(0, 100, 0.0), (100, 100, 0.0), (1, 2, 0.4), (5_000, 20_000, 0.004)]
)
def test_the_spread_of_one_seed_is_that_of_its_rows(rarest: int, test: int, apart: float) -> None:
    """None where the rows are unknown or of one class; the fewer of the rare class, the wider."""
    assert told_apart(_one_seed(), rarest, test) == pytest.approx(apart, abs=max(0.1 * apart, 0.1 * (rarest == 1)))
    assert told_apart(frontier().points, rarest, test) == pytest.approx(0.01), "of several seeds theirs"
