"""What a report says and draws follows from what was measured: causes, sources, spreads and scales."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.attacks.documents import made
from tests.attacks.frontiers import frontier, point
from tests.commands.experiment_documents import run
from treetap.attacks.advice.advise import AdvisedJob, advise
from treetap.attacks.id2graph.schema import KnownSettings
from treetap.attacks.known_labels.evidence import SignatureEvidence
from treetap.attacks.known_labels.names import KnownLabels
from treetap.attacks.report import html as audit_html
from treetap.attacks.report.verdict import lines, to_do, told
from treetap.attacks.verdict import Compared, FirstNamed, Verdict, judged
from treetap.lab.experiment.baselines import CENTRALISED, UNDEFENDED, concluded
from treetap.lab.experiment.command import print_report
from treetap.lab.experiment.headline import Gain, conclusion, headline
from treetap.lab.experiment.recommended import recommend, told_apart
from treetap.lab.experiment.results import Defended
from treetap.privacy.frontiers import Measured, MeasuredAlone, MeasuredPoint
from treetap.tables.labels import Labels

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
    assert "clinic alone 0.957 (gain -0.005, -0.010 to -0.000: worse than alone)" in printed
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
    (line,) = lines([verdict])
    assert (line.before, line.gained) == (pytest.approx(before), pytest.approx(gained))
    assert ("▓" in told([verdict])[1]) == (gained > 0)
    page = audit_html(made(trees=1).model_copy(update={"verdicts": [verdict]}))
    width = re.search(r'class="gained" x="[\d.]+" width="([\d.]+)"', page)
    assert width is not None
    assert float(width[1]) == pytest.approx(gained, abs=0.01)


@pytest.mark.parametrize(
    ("error", "before", "after", "said"),
    [
        (0.001, 0.6, 0.6, "gets no better; the order below it does"),
        (0.001, 0.6, 0.65, "gets no better; the order below it does"),
        (0.001, 0.08, 0.65, "which is what to fear, gets better"),
        (0.5, 0.6, 0.6, "by chance 21)"),
        (0.5, 0.6, 0.65, "within chance"),
    ],
)
def test_which_of_two_yardsticks_to_fear(error: float, before: float, after: float, said: str) -> None:
    """The first records and the word never contradict each other without a sentence."""
    first = FirstNamed(first=100, rarest="yes", before=before, after=after, chance=0.21)
    (line,) = lines([_verdict(0.667, 0.711, error=error, known=40, drawn=0.012, first=first)])
    assert line.beside.endswith(said)
    assert line.gain.endswith("40 labels known, ± 0.012 by the draw of the 40")


JOB = AdvisedJob("boosting", "bank", ["telco"], 2, {}, "severe", {}, {})


@pytest.mark.parametrize(
    ("whose", "guessed", "said"),
    [
        ("this table", (0.21, 0.5), "ID-LMID, ξ 0.1, which took away 98 % on this very table"),
        ("this table", (0.24, 0.22), "ID-LMID, ξ 0.1 to 0.5, which took away 90 to 95 % on this very table"),
        ("this table", (0.2, 0.21), "ID-LMID, ξ 0.1 to 0.5, which took away 98 to 100 % on this very table"),
    ],
)
def test_advice_names_its_table_and_no_setting_that_chance_chose(
    whose: Any, guessed: tuple[float, float], said: str
) -> None:
    """Settings of one defence that take as much as the spread tells are named together."""
    points = [point("id_lmid", {"xi": xi}, 0.85, it) for xi, it in zip((0.1, 0.5), guessed, strict=True)]
    document = made(trees=1).model_copy(
        update={"verdicts": [_verdict(0.5, 0.9)], "advice": advise(JOB, (whose, frontier(*points)))}
    )
    assert to_do(document)["labels"] == f"To lower it: labels by {said}: “What lowers this” in the report."


def test_advice_of_another_table_says_so_and_proposes_to_measure() -> None:
    """In the line that people copy."""
    document = frontier(point("label_dp", {"epsilon": 1.0, "stages": 2}, 0.85, 0.3))
    source = advise(JOB, ("this table", document))
    assert source.source is not None
    other = source.model_copy(update={"source": source.source.model_copy(update={"whose": "project"})})
    whole = made(trees=1).model_copy(update={"verdicts": [_verdict(0.5, 0.9)], "advice": other})
    assert to_do(whole)["labels"].endswith(
        "which took away 75 % on bank, a table like yours: “What lowers this” in the report; try it: treetap frontier "
        "FILE."
    )


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
    assert found.says.startswith("Take label DP, here as label DP + refit, ε 0.5, stages 2: ")
    assert "Grafting-LDP, ε 1, stages 2 (0.845)" in found.says
    assert "ID-LMID" not in found.says
    assert f"One seed: points closer than {apart:.2f} in AUC are not told apart; seed = [0, 1, 2]" in found.says
    near = recommend(points, MeasuredAlone(auc=Measured(mean=0.84), accuracy=Measured(mean=None)), 0.2, "bank", apart)
    assert "; bank alone. One seed" in near.says


@pytest.mark.parametrize(
    ("rarest", "test", "apart"), [(0, 100, 0.0), (100, 100, 0.0), (1, 2, 0.4), (5_000, 20_000, 0.004)]
)
def test_the_spread_of_one_seed_is_that_of_its_rows(rarest: int, test: int, apart: float) -> None:
    """None where the rows are unknown or of one class; the fewer of the rare class, the wider."""
    assert told_apart(_one_seed(), rarest, test) == pytest.approx(apart, abs=max(0.1 * apart, 0.1 * (rarest == 1)))
    assert told_apart(frontier().points, rarest, test) == pytest.approx(0.01), "of several seeds theirs"
