"""The lines that everybody reads fit 80 and 60 columns, have one number each, and keys in lines to paste alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.documents import made
from tests.attacks.frontiers import frontier, point
from tests.commands.command import screen
from tests.commands.experiment_documents import run
from tests.console.full import full
from treetap import terminal
from treetap.attacks.advice.advise import AdvisedJob, advise
from treetap.attacks.advice.names import DEFENCES, PLAIN, plainly
from treetap.attacks.report.page import print_verdict
from treetap.attacks.report.verdict import SHARES, to_do
from treetap.attacks.verdict import Compared, FirstNamed, Measure, Verdict, judged
from treetap.commands.approvals import cli
from treetap.commands.jobs import progress_view
from treetap.commands.jobs.cli import _print_checked
from treetap.lab import demo
from treetap.lab.experiment.command import print_report
from treetap.lab.experiment.frontier import print_frontier
from treetap.lab.experiment.recommended import recommend
from treetap.ops.doctor.connections import Finding, end
from treetap.pages.printing import print_words
from treetap.privacy.frontiers import FrontierDocument
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

WIDTHS = pytest.mark.parametrize("width", [60, 80])
#: What only a line to paste has: a key with its value, or a key of several words.
KEY = re.compile(r"\b[a-z]+_[a-z_]+\b|\w = |\[\[?[a-z]+\]")
NUMBER = re.compile(r"(?<![\w-])\d[\d.,]*")
HOLDER, PARTNER = "label-holder", "northern-telco"


def _verdict(learned: Any, measure: Measure, before: float, reached: float, **more: Any) -> Verdict:
    it = {"measure": measure, "before_how": "own columns", "reached_how": "UNI", "details": "known", "tries": 1}
    compared = Compared.model_validate(it | {"before": before, "reached": reached, "error": 0.01, **more})
    party, of = (PARTNER, HOLDER) if learned == "labels" else (HOLDER, PARTNER)
    return judged(party, learned, of, [compared], reason="", details="known")


FIRST = FirstNamed(first=100, rarest="yes", before=0.08, after=0.65, chance=0.21)
FLOOR = 'a floor, by left sets; to read all, which takes longer:\n    record = "received"  # in the [[party]]'
OTHER = Compared.model_validate(
    {"measure": "accuracy", "before": 0.188, "before_how": "", "reached": 1.0, "reached_how": "", "error": 0.01}
    | {"tries": 1, "details": "columns"}
)
REASON = 'its messages were not kept; to measure it:\n    record = "received"  # in the [[party]] of label-holder'
VERDICTS = [
    _verdict("labels", "accuracy", 0.917, 0.971),
    _verdict("labels", "AUC", 0.667, 0.779, known=40, drawn=0.01, first=FIRST),
    _verdict("columns", "explained", 0.0, 1.0, floor=FLOOR.replace("\\\n", "\n")).model_copy(update={"other": OTHER}),
    judged(HOLDER, "columns", "shop", [], reason=REASON.replace("\\\n", "\n"), details="columns"),
]
GAIN = {"measure": "auc", "together": 0.996, "alone": {HOLDER: 0.947}, "low": 0.011, "high": 0.104}


def _cures() -> dict[str, str]:
    job = AdvisedJob("boosting", HOLDER, [PARTNER], 2, {}, "severe", {}, {})
    advice = advise(job, ("given", frontier(point("label_dp", {"epsilon": 1.0, "stages": 2}, 0.85, 0.3))))
    told = made(trees=1).model_copy(update={"verdicts": VERDICTS, "advice": advice})
    return {str(learned): cure for learned, cure in to_do(told).items()}


def _experiment() -> None:
    row = {"auc": 0.996}
    rows = {"train": row, "test": row, "centralised, test": row}
    print_report([run(gain=GAIN, verdicts=VERDICTS, to_do=_cures(), metrics=rows, audit={})], details=False)


def _demo() -> None:
    row = {"auc": 0.996}
    rows = {"train": row, "test": row, "centralised, test": row}
    demo.conclude(run(gain=GAIN, verdicts=VERDICTS, to_do=_cures(), metrics=rows), BoostingParams())


def _audit() -> None:
    print_verdict(made(trees=1).model_copy(update={"verdicts": VERDICTS}), terminal.out)


def _frontier() -> None:
    merged = point("grafting + refit", {"epsilon": 1.0, "stages": 2}, 0.86, 0.25, read=0.2)
    rival = point("id_lmid", {"xi": 0.5}, 0.86, 0.26, read=0.5)
    document = frontier(merged, rival, read=0.5)
    chosen = recommend(document.points, document.alone, document.before.mean, HOLDER, 0.02)
    assert chosen.point == 1
    print_frontier(FrontierDocument.model_validate(document.model_dump() | {"recommended": chosen.model_dump()}))


def _jobs() -> None:
    rows = [
        jobs_pb2.JobStatus(job="loans-first-of-march", kind="train", state="finished", phase="finished", seconds=912.4),
        jobs_pb2.JobStatus(job="second", kind="train", state="running", phase="train", rounds=9, stored_trees=3),
    ]
    rows[0].metrics.add(name="train_auc", value=0.8852)
    rows[0].metrics.add(name="train_logloss", value=0.3389)
    rows[0].arithmetic.add(party="bank", backend="ifma")
    progress_view.print_statuses(rows)


def _approvals() -> None:
    given = full()
    for asked in given.asked:
        cli._show(asked)
    cli._show_standing(given.approvals[0], as_json=False)


def _train() -> None:
    _print_checked([jobs_pb2.Checked(party="bank", would_wait=True)], ["bank"], as_json=False)
    with progress_view.live("first") as update:
        say = progress_view.saying_changes("first", update)
        for trees, state in enumerate(("waiting", "running", "running", "interrupted")):
            status = jobs_pb2.JobStatus(kind="train", state=state, rounds=3, stored_trees=trees, planned_bytes=10**10)
            status.error = f"waiting for approval of {PARTNER}, {HOLDER}, a-further-party-of-the-federation and another"
            say(status)


def _doctor() -> None:
    why = "certificate of coordinator-of-the-federation ends in 9 days: ask for another before 1 May, as docs say"
    findings = [Finding("warning", "certificate", why), Finding("ok", "table train", "1,000 records")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("threading.enumerate", list)  # no check hangs
        with pytest.raises(SystemExit):
            end(findings, {}, as_json=False)


@WIDTHS
@pytest.mark.parametrize("plain", ["NO_COLOR", "TERM", ""])
@pytest.mark.parametrize("says", [_experiment, _demo, _audit, _frontier, _jobs, _approvals, _train, _doctor])
def test_no_line_is_wider(says: Callable[[], None], plain: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal without colours, on a dumb one, and where there is none; no word is broken.

    But a line to paste; a table that does not fit is printed in parts that all begin with its rows' names.
    """
    monkeypatch.setenv(plain or "NONE", "dumb")
    printed = []
    for columns in (width, 500):
        of = {"height": 25, "force_terminal": bool(plain)}
        texts = [screen(monkeypatch, name, columns, **of) for name in ("out", "err")]
        says()
        printed.append("".join(text.getvalue() for text in texts))
    assert (r"\x1b[3" if plain == "NO_COLOR" else "\x1b") not in printed[0]
    narrow, wide = (re.sub(r"\x1b\[[\d;?]*[A-Za-z]|[─━]+", "", text).replace("\r", "\n") for text in printed)
    lines = [line.rstrip() for line in narrow.splitlines()]
    if plain or says != _doctor:  # which has a line each where nobody reads them on a screen
        assert [line for line in lines if len(line) > width and not line.startswith("    ")] == []
    assert {word.rstrip(":") for word in narrow.split()} - {word.rstrip(":") for word in wide.split()} == set()
    assert "ifma" not in narrow


@WIDTHS
@pytest.mark.parametrize("says", [_experiment, _demo, _audit, _frontier])
def test_one_number_a_line_and_no_key(says: Callable[[], None], width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first table."""
    text = screen(monkeypatch, "out", width)
    says()
    prose = re.split(r"Metrics of each model|All points", text.getvalue())[0].splitlines()
    told = [line for line in prose if not line.startswith("    ") and "docs/" not in line]
    assert [line for line in told if len(NUMBER.findall(line)) > 1] == []
    assert [line for line in told if KEY.search(line.replace("breast_cancer", "a table"))] == []
    assert len(told) > 5


def test_each_line_is_in_the_docs() -> None:
    """With what somebody from outside takes it to mean."""
    page = (Path(__file__).parents[2] / "docs" / "measure.md").read_text(encoding="utf-8")
    for words in (*SHARES.values(), "labels right"):
        assert f"| of {words} |" in page
    for words in ("Federating pays here", "if it knows 40 of the labels", "at least so much", "took away"):
        assert f"| {words} |" in page


def test_every_defence_has_plain_words() -> None:
    """All but the one that is none."""
    assert set(DEFENCES) - set(PLAIN) == {"none"}
    assert not any(KEY.search(plainly(name)) for name in PLAIN)


def test_a_line_to_paste_is_whole_and_others_are_set_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any width."""
    text = screen(monkeypatch, "out", 20)
    print_words(terminal.out, "one two three four five\n    record = 'received'  # whole\n  set in by two and so on")
    assert text.getvalue().splitlines() == [
        *("one two three four", "  five", "    record = 'received'  # whole", "  set in by two and", "    so on"),
    ]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"kind": "train", "phase": "train", "rounds": 9, "stored_trees": 3}, "trained 3 of 9"),
        ({"kind": "predict", "phase": "predict", "records": 2000, "scored": 500}, "scored 500 of 2,000"),
        ({"kind": "align", "phase": "align", "records": 50, "scored": 15}, "compared 15 of 50"),
        ({"kind": "train", "phase": "prepare"}, "prepare"),
    ],
)
def test_progress_says_how_much_of_what(status: dict[str, Any], said: str) -> None:
    """And nothing else."""
    *_, where, what = progress_view._described(jobs_pb2.JobStatus(job="j", state="running", **status))
    assert (where, what) == (said, "")
