"""The first lines and the first screen of an experiment: what it is worth, and what each side learned by it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.commands.command import treetap
from tests.commands.experiment_documents import REGRESSION, experiment, run
from treetap.attacks.report.verdict import Verdicts
from treetap.attacks.verdict import Verdict, Word
from treetap.lab.experiment.command import print_report, run_line
from treetap.lab.experiment.page import beside, html, learned
from treetap.lab.experiment.results import RunResult, to_lower, worst_verdicts

GAIN = {"measure": "auc", "together": 0.73, "alone": {"clinic": 0.66}, "low": 0.05, "high": 0.09}


def _verdict(word: Word, share: float, learned: Literal["labels", "columns"] = "labels", **more: Any) -> Verdict:
    party, of = ("lab", "clinic") if learned == "labels" else ("clinic", "lab")
    figures = {"measure": "accuracy", "before": 0.6, "before_how": "own columns", "after": 0.6 + 0.4 * share}
    figures |= {"gain": 0.4 * share, "low": 0.0, "high": 0.8 * share, "share": share}
    return Verdict.model_validate(
        {"party": party, "learned": learned, "of": of, "word": word, "details": "attacks", **figures, **more}
    )


def _runs() -> list[RunResult]:
    """Two seeds: the second one is worse for labels, the first one for columns."""
    verdicts = [
        [_verdict("little", 0.04), _verdict("severe", 0.5, "columns")],
        [_verdict("notable", 0.1), _verdict("severe", 0.3, "columns")],
    ]
    return [
        run(
            seed,
            gain=GAIN,
            verdicts=own,
            to_do={"columns": f"columns {seed}"} | ({"labels": f"labels {seed}"} if seed else {}),
            audit_report=f"runs/exp/seed-{seed}/audit.html",
            audit={},
        )
        for seed, own in enumerate(verdicts)
    ]


def test_the_worst_run_of_each_direction_counts() -> None:
    """By word, then by share; and each direction's cure is the one of its worst."""
    runs = _runs()
    worst = worst_verdicts(runs)
    assert [(it.learned, it.word, it.share, of.seed) for it, of in worst] == [
        ("labels", "notable", 0.1, 1),
        ("columns", "severe", 0.5, 0),
    ]
    assert [(cure, of.audit_report) for cure, of in to_lower(worst)] == [
        ("labels 1", "runs/exp/seed-1/audit.html"),
        ("columns 0", "runs/exp/seed-0/audit.html"),
    ]
    assert worst_verdicts([run()]) == []
    assert to_lower([]) == []
    section = learned(worst, 2)
    shown = [part for part in section.parts if isinstance(part, Verdicts)]
    addresses = [(part.page, [line.word for line in part.lines]) for part in shown]
    assert addresses == [("seed-1/audit.html", ["notable"]), ("seed-0/audit.html", ["severe"])]


def test_the_terminal_begins_with_the_two_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """Together and alone, what each side learned, then tables of all runs, once; costs on request."""
    print_report(_runs(), details=False)
    printed = capsys.readouterr().out
    warned, first, second, *_ = printed.splitlines()
    assert warned.startswith("held-out rows of class 'no', on which the measures below rest: 30; ")
    assert first == "Together 0.730 AUC, clinic alone 0.660 (gain +0.070, +0.050 to +0.090)"
    assert second == "What each side learned, the worst of 2 runs:"
    assert "lab could guess 60.0 % of clinic's labels before (own columns), 64.0 % after" in printed
    assert (
        printed.index("notable: +4.0 points")
        < printed.index("severe: +20.0 points")
        < printed.index("labels 1\ncolumns 0")
    )
    assert printed.count("Mean ± standard deviation of 2 runs") == 1
    assert "CIPHERTEXT" not in printed
    assert len(printed.splitlines()) <= 30
    print_report(_runs(), details=True)
    printed = capsys.readouterr().out
    assert printed.count("Who received what") == 1
    assert "30.0 kB" in printed, "the mean of the runs"
    left_out = ["Not audited: the table is large."]
    print_report([run(left_out=left_out)], details=False)
    assert capsys.readouterr().out.splitlines()[1] == left_out[0]


def test_a_run_is_a_line() -> None:
    """With its seconds, those of the audit included."""
    assert run_line(run(3, gain=GAIN, audit_seconds=1.5)) == "seed 3: together 0.730 AUC, clinic alone 0.660; 7.5 s"
    assert run_line(run(3, fold=2, metrics={"test": {"rmse": 0.5}})) == "seed 3, fold 2: rmse 0.5000; 6.0 s"


def test_the_first_screen_is_the_verdict() -> None:
    """The line, bars of together and alone, a sentence on the gain, and the verdicts with their addresses."""
    page = html(experiment(), "loans", _runs())
    assert page.index("Together 0.730 AUC") < page.index('id="verdict"') < page.index('id="learned"')
    assert page.index('id="learned"') < page.index('id="metrics"')
    assert "Federating pays here" in page
    assert "60.0&#160;% of clinic&#39;s labels" in page
    assert "\\x" not in page, "nothing that a reader sees is escaped as a control character"
    assert "The worst of 2 runs." in page
    assert 'href="seed-1/audit.html#attacks"' in page
    assert "100 trees of depth 6, learning rate 0.3" not in page, "trees that are used, not those that are planned"
    assert "4 trees of depth" in page
    unsure = run(gain=GAIN | {"low": -0.01})
    assert "do not tell the federation from clinic alone" in html(experiment(), "loans", [unsure])
    worse = run(gain=GAIN | {"together": 0.6, "low": -0.09, "high": -0.03})
    assert "predicts worse than clinic alone" in html(experiment(), "loans", [worse])
    assert 'id="verdict"' not in html(experiment(), "loans", [run()])


def test_bars_are_of_what_there_is_to_reach() -> None:
    """An AUC of ½ is chance and has no length; of errors the largest one has the whole."""
    runs = [run(gain=GAIN)]
    shown = beside([it.gain for it in runs])
    assert [(bar.name, bar.figures, bar.percent) for bar in shown.rows] == [
        ("together", ["0.730 AUC"], "46.00"),
        ("clinic alone", ["0.660 AUC"], "32.00"),
    ]
    errors = {"measure": "rmse", "together": 3.0, "alone": {"clinic": 4.0}, "low": 0.5, "high": 1.5}
    shown = beside([run(objective=REGRESSION, gain=errors).gain])
    assert [bar.percent for bar in shown.rows] == ["75.00", "100.00"]
    assert beside([None]) is None


@pytest.mark.second_tier
def test_an_experiment_says_both_by_itself(tmp_path: Path) -> None:
    """Without a word about it in the file: compared, audited, and the document, the page and the terminal agree."""
    draw = random.Random(8)
    lines = ["a,b,y"]
    for _ in range(300):
        a, b = draw.gauss(0, 1), draw.gauss(0, 1)
        lines.append(f"{a:.4f},{b:.4f},{int(a + 2 * b + draw.gauss(0, 1) > 0)}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    parties = '[[party]]\nname = "bank"\nlabels = true\ncolumns = ["a"]\n[[party]]\nname = "telco"\ncolumns = ["b"]\n'
    job = "[job]\nkey_bits = 1024\nn_estimators = 3\nmax_depth = 3\n"
    (tmp_path / "exp.toml").write_text(f'[data]\npath = "t.csv"\nlabel = "y"\n{parties}{job}')
    outcome = treetap("experiment", "exp.toml", folder=tmp_path)
    assert outcome.status == 0, outcome.err
    document = json.loads((tmp_path / "runs" / "exp" / "results.json").read_text())
    (found,) = document["runs"]
    warned = document["warnings"]
    assert [line.split(",")[0] for line in warned] == [
        "column 'b' of telco ranks the label by itself",
        "held-out rows of class '0'",
    ]
    assert outcome.out.splitlines()[:2] == warned
    first, second, *_ = outcome.out.splitlines()[2:]
    assert (first, second) == (document["headline"], "What each side learned:")
    assert found["gain"]["together"] == found["metrics"]["test"]["auc"]
    assert found["gain"]["alone"] == {"bank": found["metrics"]["label holder alone, test"]["auc"]}
    assert found["gain"]["low"] > 0, "b tells twice as much as a"
    by_party = {(it["party"], it["learned"]): it for it in found["verdicts"]}
    assert by_party["telco", "labels"]["word"] == "nothing found", "its one column ranked them before"
    assert 'record = "received" in the [[party]] of bank lets it read all' in by_party["bank", "columns"]["floor"]
    page = (tmp_path / "runs" / "exp" / "report.html").read_text()
    assert document["headline"] in page
    audit = (tmp_path / "runs" / "exp" / "seed-0" / "audit.html").read_text()
    assert "<title>Audit of exp, seed 0</title>" in audit
