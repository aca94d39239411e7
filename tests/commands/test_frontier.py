"""`treetap frontier`: its file, resumption, refusals, document and page."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.frontiers import frontier as by_hand
from tests.attacks.frontiers import point as at
from tests.commands.command import refused, treetap
from treetap.attacks.sums.schema import NOTHING_OFFERED
from treetap.attacks.verdict import Compared, judged
from treetap.commands.jobs.job_file import JobTable
from treetap.errors import BadInput, ConfigError
from treetap.lab.experiment import defence_points, frontier
from treetap.lab.experiment.defence_points import ALONE, by_groups, by_names, by_shares, measure_of
from treetap.lab.experiment.experiment_file import (
    LABEL_DP_VARIANTS,
    Cells,
    ExperimentFile,
    Guess,
    Plan,
    TrainingResult,
    recommended_rows,
)
from treetap.lab.experiment.frontier import html, measured, picture, print_frontier
from treetap.lab.experiment.kept import opened
from treetap.lab.experiment.panels import LETTER, of_attacks, of_columns, of_guesses, value
from treetap.lab.experiment.recommended import recommend
from treetap.privacy.frontiers import FrontierDocument, Measured, MeasuredPoint, load_frontier
from treetap.strict import load

DATA = 'path = "t.csv"\nlabel = "y"\nseed = [0, 1]\n'
JOB = 'protocol = "forest"\nkey_bits = 1024\nn_estimators = 3\nmax_depth = 4\n'
ROWS = ("reduced_leakage = { trees = 1 }", "id_lmid = { xi = [0.1, 0.5] }")
#: The data of a file whose text is encoded.
ENCODED = DATA + 'encode = "ordinal"\n'
#: The audit with the quickest attacks.
QUICK = '[audit]\nattacks = ["uni"]\nsettings = {starts = 1}\n'
#: Tests of one document run in one worker, which makes it once.
of_one_document = pytest.mark.xdist_group("frontier-document")


def _file(
    folder: Path,
    rows: tuple[str, ...] = ROWS,
    job: str = JOB,
    data: str = DATA,
    more: str = "",
    others: tuple[str, ...] = ("lab", "shop"),
) -> Path:
    parties = '[[party]]\nname = "clinic"\nlabels = true\ncolumns = ["a", "kind"]\n'
    parties += "".join(f'[[party]]\nname = "{name}"\nshare = 0.5\n' for name in others)
    path = folder / "sweep.toml"
    defences = "".join(f"[[defence]]\n{row}\n" for row in rows)
    path.write_text(f"[data]\n{data}{parties}[job]\n{job}{defences}{more}", encoding="utf-8")
    return path


def _run(file: Path, folder: Path, *, resume: bool = False, as_json: bool = True) -> None:
    places = {"workdir": None, "resume": folder} if resume else {"workdir": folder, "resume": None}
    frontier.run_file(file, as_json=as_json, trainer="centralised", **places)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a table of 150 rows, three classes and a column of text."""
    _write_table(tmp_path)
    return tmp_path


def _write_table(folder: Path, seed: int = 1) -> None:
    draw = random.Random(seed)
    lines = ["a,b,c,d,e,kind,y"]
    for _ in range(150):
        a, b, c, d, e = (draw.random() for _ in range(5))
        label = 2 if b + c > 1.2 else int(a + d > 1)
        lines.append(f"{a},{b},{c},{d},{e},{draw.choice(['red', 'blue'])},{'xyz'[label]}")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The trainings that are done from now on, by name."""
    done: list[str] = []
    real: Callable[..., Any] = defence_points.trained_centrally

    def train(experiment: Any, table: Any, plan: Plan, seed: int, *more: Any) -> Any:
        done.append(frontier.training_name(plan, seed))
        return real(experiment, table, plan, seed, *more)

    monkeypatch.setattr(defence_points, "trained_centrally", train)
    return done


@pytest.mark.parametrize(
    ("rows", "job", "expected"),
    [
        (("id_lmind = { xi = 0.5 }",), JOB, "defence.[1].id_lmind: unknown key"),
        (("id_lmid = { xi = [0.5, -0.1] }",), JOB, "id_lmid.xi: Input should be greater than or equal to 0"),
        (
            ("reduced_leakage = { trees = 0 }",),
            JOB,
            "trees: Input should be greater than or equal to 1",
        ),
        (("id_lmid = { xi = [0.5, 0.5] }",), JOB, "[[defence]] has id_lmid-0.5-shown twice"),
        (("id_lmid = { xi = 0.5 }\nmin_cell_records = 3",), JOB, "must have one defence, or job"),
        (("",), JOB, "must have one defence, or job"),
        (("min_cell_records = [1]",), JOB, "min_cell_records: Input should be greater than or equal to 2"),
        (("job = { max_depth = 2 }",) * 2, JOB, "[[defence]] has job-max_depth-2 twice"),
        (("job = { protocol = 'boosting' }",), JOB, "job sets protocol, which all points of a frontier share"),
        (("job = { gradient_bits = 5 }",), JOB, "[[defence]] job {'gradient_bits': 5}: "),
        (("job = { max_bin = 1 }",), "key_bits = 1024\n", "[[defence]] job {'max_bin': 1}: "),
        (
            ("job = { model = 'additive' }",),
            "scheme = 'lattice'\ninstance_spaces = 'withheld'\n",
            "[[defence]] job {'model': 'additive'}: instance_spaces = 'withheld' and model = 'additive' with sums",
        ),
        (("label_dp = { epsilon = 0.0 }",), JOB, "label_dp.epsilon: Input should be greater than 0"),
        (
            ("id_lmid = { xi = 1 }\ngrafting = true",),
            JOB,
            "repairs models of noisy labels: add label_dp",
        ),
        (ROWS, 'objective = "reg:squarederror"\n', "a regression: not for a frontier"),
    ],
)
def test_points_that_cannot_be_trained(rows: tuple[str, ...], job: str, expected: str, folder: Path) -> None:
    """An unknown defence, a parameter out of range, a point that is there twice and a regression are refused."""
    with pytest.raises(ConfigError, match="wrong:") as raised:
        load(_file(folder, rows, job), ExperimentFile)
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"more": "[predict]\n"}, "[predict]"),
        ({"more": "[defences]\nreduced_leakage = {trees = 1}\n"}, "[defences]"),
        ({"data": DATA + "cv = 3\n"}, "cv in [data]"),
        ({"job": "key_bits = 1024\nmax_sample_weight = 2.0\n", "data": DATA + 'weight = "w"\n'}, "weight in [data]"),
    ],
)
def test_what_rows_do_not_have(changes: dict[str, str], expected: str, folder: Path) -> None:
    """A file that says what the rows set themselves, or what some defence cannot have; the usual rows are rows too."""
    for rows in (ROWS, ()):
        file = _file(folder, rows, **changes)
        with pytest.raises(ConfigError) as raised:
            load(file, ExperimentFile) if rows else _run(file, folder / "kept")
        assert f"{expected}: not for a frontier" in str(raised.value)


@pytest.mark.second_tier
def test_networks_have_no_frontier(folder: Path) -> None:
    """Its attacks and most of its defences are of trees; the refusal names the command that has theirs."""
    pytest.importorskip("torch", reason="needs treetap[neural]")
    with pytest.raises(ConfigError, match=r"protocol 'splitnn': not for a frontier.* run 'treetap experiment'"):
        load(_file(folder, job='protocol = "splitnn"\n'), ExperimentFile)


@pytest.mark.second_tier
def test_a_finished_training_is_not_repeated(
    folder: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is kept as it ends, also where Ctrl-C comes: --resume trains what is missing, and rows that are new."""
    file, kept = _file(folder, data=ENCODED, more=QUICK), folder / "kept"
    real = defence_points.trained_centrally

    def stopping(*given: Any) -> Any:
        if len(trained) == 2:
            raise KeyboardInterrupt
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(defence_points, "trained_centrally", stopping)
        with pytest.raises(KeyboardInterrupt):
            _run(file, kept)
    said = capsys.readouterr()
    assert said.out == ""
    assert f"go on with the trainings that are missing: treetap frontier {file} --trainer centralised" in said.err
    assert list(json.loads((kept / "points.json").read_text())["points"]) == ["none-seed-0", "none-seed-1"]
    _run(file, kept, resume=True)
    first = capsys.readouterr()
    assert json.loads(first.out) == json.loads((kept / "frontier.json").read_text())
    assert len(trained) == len(set(trained)) == 8
    assert [line for line in first.err.splitlines() if line.startswith("trained")][-1] == "trained 8 of 8"
    _run(file, kept, resume=True)
    assert capsys.readouterr().out == first.out
    wider = _file(folder, (*ROWS, "id_lmid = { xi = 2 }"), data=ENCODED, more=QUICK)
    _run(wider, kept, resume=True)
    assert trained[8:] == ["id_lmid-2.0-shown-seed-0", "id_lmid-2.0-shown-seed-1"]
    with pytest.raises(BadInput, match='trainer was "centralised", now "federation"'):
        frontier.run_file(wider, as_json=True, trainer="federation", workdir=None, resume=kept)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FrontierDocument]:
    """A frontier: its folder and its document."""
    folder = tmp_path_factory.mktemp("frontier")
    _write_table(folder)
    kept = folder / "kept"
    more = "[audit]\nsettings = {starts = 1}\n"
    _run(_file(folder, data=ENCODED, more=more), kept, as_json=False)
    return kept, load_frontier(kept / "frontier.json")


@pytest.mark.second_tier
def test_one_training_with_label_dp_gives_four_points(
    folder: Path, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Noisy labels are drawn once per ε and seed; repairs share what was seen, and have other AUCs."""
    rows = ("label_dp = { epsilon = [0.5, 64], stages = 2 }\ngrafting = true",)
    more = '[audit]\nattacks = ["id2graph"]\nsettings = {starts = 1}\n'
    _run(_file(folder, rows, data=ENCODED, more=more), folder / "kept")
    assert len(trained) == 6
    document = FrontierDocument.model_validate_json(capsys.readouterr().out)
    assert [(point.defence, point.settings["epsilon"]) for point in document.points[1:]] == [
        (name, epsilon) for epsilon in (0.5, 64.0) for name in LABEL_DP_VARIANTS
    ]
    noisy = document.points[1:5]
    assert all(point.v_measure == noisy[0].v_measure for point in noisy)
    assert len({point.auc.mean for point in noisy}) > 1
    same = document.points[5:]  # at ε = 64 no label changes, so nothing is repaired
    assert all(point.auc == same[0].auc for point in same)
    assert any("ledger of its own" in sentence for sentence in document.says)


def test_defences_that_a_job_cannot_have(folder: Path) -> None:
    """More own trees than the job has, and priors or trees from columns that the label holder lacks, are refused."""
    for row, expected in (
        ("reduced_leakage = { trees = 4 }", "the job has 3 trees"),
        ("label_dp = { epsilon = 1, stages = 2 }", "set stages = 1"),
        (
            "reduced_leakage = { trees = 1 }",
            "and a table without columns of features do not go together",
        ),
    ):
        file = _file(folder, (row,), data=ENCODED)
        if "columns" in expected or "stages" in expected:
            file.write_text(file.read_text().replace('columns = ["a", "kind"]', "columns = []"))
        with pytest.raises(ConfigError) as raised:
            _run(file, folder / "kept")
        assert expected in str(raised.value)
    assert not (folder / "kept").exists()


@pytest.mark.second_tier
@of_one_document
def test_documents_that_are_none(made: tuple[Path, FrontierDocument], tmp_path: Path) -> None:
    """A newer version, another file and no file are refused with the path."""
    _, document = made
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps(document.model_dump() | {"version": 5}))
    with pytest.raises(BadInput, match=r"newer\.json: is no frontier of version 4 \(version: "):
        load_frontier(newer)
    with pytest.raises(BadInput, match="there is no such file"):
        load_frontier(tmp_path / "absent.json")


@pytest.mark.second_tier
@of_one_document
def test_the_page(made: tuple[Path, FrontierDocument]) -> None:
    """A panel that decides and one for each attack; a marker and a row for each point; names are escaped.

    Of one defence's points the last has the largest marker; a point without an AUC is in the table alone.
    """
    folder, document = made
    page = (folder / "frontier.html").read_text()
    for title in ("What others can guess", "ID2Graph", "UNI", "UNI+CL", "Own winning splits"):
        assert f"<h3>{title}</h3>" in page
    assert page.count('class="level"') == page.count('class="limit"') == 5
    assert page.count('class="mark" transform="translate(') == 5 * len(document.points) + 3
    assert page.count("<th scope=") >= len(document.points)
    assert f"clinic alone {document.alone.auc.mean:.3f}" in page
    assert picture(document).count('class="level"') == 1
    odd = document.model_copy(update={"table": "<b>.csv"})
    assert "<b>.csv" not in html(odd)
    undefined = [
        point.model_copy(update={"auc": Measured(mean=None)}) if value(point) == "ξ 0.1" else point
        for point in document.points
    ]
    assert html(document).count("ID-LMID ξ 0.1: AUC") == 5
    assert "M3.5 0A3.5" in html(document)
    assert "M8 0A8" in html(document)
    assert "ID-LMID ξ 0.1: AUC" not in html(document.model_copy(update={"points": undefined}))


def _by_hand(*points: MeasuredPoint) -> FrontierDocument:
    """A document with these points; AUC 0.9 together, 0.7 alone, 0.6 of the labels guessed, 0.2 before."""
    made = by_hand(*points)
    return made.model_copy(update={"recommended": recommend(made.points, made.alone, made.before.mean, "bank")})


def test_what_is_recommended() -> None:
    """Most is taken away among what keeps half of the gain; equal shares by AUC; each reason for none is said."""
    mild = at("id_lmid", {"xi": 0.5, "counts": "shown"}, 0.88, 0.42)
    strict = at("id_lmid", {"xi": 0.25, "counts": "shown"}, 0.81, 0.3)
    equal = at("label_dp + refit", {"epsilon": 1.0, "stages": 2}, 0.85, 0.308)
    dear = at("id_lmid", {"xi": 0.1, "counts": "shown"}, 0.79, 0.2)
    loose = at("id_lmid", {"xi": 2.0, "counts": "shown"}, 0.9, 0.52)
    for points, chosen in (((loose, mild, strict, dear), 3), ((mild, strict, equal, dear), 3), ((mild, dear), 1)):
        document = _by_hand(*points)
        assert document.recommended.point == chosen
    taken = _by_hand(mild, strict, equal, dear).recommended
    assert [taken.kept, taken.taken] == pytest.approx([0.75, 0.73])
    assert taken.lines == {
        "party file of bank": ["[defences]", "label_dp = {epsilon = 1.0, stages = 2}", "refit = true"],
        "policy of bank": ["[labels]", "label_budget = 1.0"],
    }
    assert taken.says.splitlines() == [
        "Take this: train on labels of which chance changes some, and repair the leaves (label DP + refit).",
        "It takes away 73 % of what the training tells of labels.",
        "It keeps 75 % of the gain.",
        "AUC 0.850 with it.",
    ]
    for nothing in (_by_hand(dear, loose), _by_hand()):
        assert nothing.recommended.point is None
        assert "No measured setting keeps half of the gain" in nothing.recommended.says
    made = _by_hand(mild)
    worse = [it.model_copy(update={"gain": Measured(mean=-0.01)}) for it in made.points]
    assert recommend(worse, made.alone, 0.2, "bank").says.startswith("Together the parties are no better than bank")
    calm = [it.model_copy(update={"added": Measured(mean=0.04)}) for it in made.points]
    assert "There is little to lower: of what was left" in recommend(calm, made.alone, 0.2, "bank").says
    blind = [it.model_copy(update={"gain": Measured(mean=None)}) for it in made.points]
    assert "undefined" in recommend(blind, made.alone, 0.2, "bank").says


def test_a_recommended_point_says_what_is_read_of_columns() -> None:
    """A setting that hides labels may tell more of columns; one that hides cells may leave the order of values."""
    numbers = "  90.0 % of the variation of numbers."
    noise = at("label_dp", {"epsilon": 0.5, "stages": 1}, 0.88, 0.3, read=0.96)
    made = by_hand(noise, read=0.5)
    says = recommend(made.points, made.alone, made.before.mean, "bank").says
    without = ["Without it:", "  50.0 % of the cells.", numbers]
    then = ["Of columns the label holder then reads:", "  96.0 % of the cells.", numbers]
    assert says.splitlines()[-6:] == [*then, *without]
    merged = at("min_cell_records", {"min_cell_records": 10}, 0.89, 0.6, read=0.3)
    for added, begins in ((0.4, "No measured setting keeps half of the gain"), (0.01, "There is little to lower")):
        points = [it.model_copy(update={"added": Measured(mean=added)}) for it in by_hand(merged, read=0.5).points]
        says = recommend(points, made.alone, made.before.mean, "bank").says
        assert says.startswith(begins)
        least = "Of columns the label holder reads least with this, no sums over few records:"
        assert says.splitlines()[-7:] == [least, "  30.0 % of the cells.", numbers, "  AUC 0.890.", *without]
        assert "Of columns" not in recommend(points[:1], made.alone, made.before.mean, "bank").says


def test_the_panel_that_decides() -> None:
    """Axes as wide as the points from alone on; the front; values where there is room; the recommended one ringed."""
    points = [
        at("id_lmid", {"xi": xi, "counts": "shown"}, 0.9 - 0.01 * k, 0.55 - 0.1 * k) for k, xi in enumerate((1, 0.5))
    ]
    far, beaten = (
        at("label_dp", {"epsilon": 0.5, "stages": 2}, 0.3, 0.25),
        at("reduced_leakage", {"trees": 1}, 0.8, 0.58),
    )
    document = _by_hand(*points, far, beaten)
    panel = of_guesses(document)
    assert (panel.beyond, [it.text for it in panel.values if it.style == "of-line"]) == (
        1,
        ["bank alone 0.700", "without the training 0.200"],
    )
    assert panel.frame.x(0.3) == panel.frame.left < panel.frame.x(0.7) < panel.frame.x(0.9) < panel.frame.x_end
    assert {it.text for it in panel.values} >= {"no defence", "ξ 1", "ξ 0.5", "trees 1"}
    assert panel.chosen is not None
    assert panel.front.count("H") == 1
    boxes = [(float(it.x), float(it.y)) for it in panel.values]
    assert len(set(boxes)) == len(boxes)
    page = html(document)
    assert "1 of the points lies further left, worse than bank alone: it is at the edge." in page
    assert page.index("What to take") < page.index("All points") < page.index("By attack")
    assert "together 0.900 AUC, bank alone 0.700 AUC" in page


def test_no_text_of_a_panel_lies_under_a_line() -> None:
    """At the right, where the line without a defence would cross it, the text of the level gives way."""
    points = [at("id_lmid", {"xi": xi, "counts": "shown"}, 0.9, 0.6 - 0.02 * k) for k, xi in enumerate((1, 0.5, 0.1))]
    panel = of_guesses(_by_hand(*points))
    assert panel.alone is not None
    assert len(panel.values) > 4
    for it in panel.values:
        wide = LETTER * len(it.text)
        left = float(it.x) - {"start": 0.0, "middle": wide / 2, "end": wide}[it.anchor]
        for line in map(float, (panel.limit, panel.alone)):
            assert not left < line < left + wide, it
    drawn = picture(_by_hand(*points))
    assert drawn.rindex('class="limit"') < drawn.index("without the training"), "what is drawn later is on top"


@pytest.mark.parametrize(
    ("job", "settings"),
    [
        ({"n_estimators": 20}, [{"max_depth": 2}, {"model": "additive", "n_estimators": 40}]),
        ({"max_depth": 2, "n_estimators": 5}, [{"model": "additive", "n_estimators": 10}]),
        ({"model": "additive"}, []),
        ({"privacy": "withheld"}, [{"max_depth": 2}]),
        ({"protocol": "forest"}, [{"max_depth": 2}]),
    ],
)
def test_the_usual_rows(job: dict[str, Any], settings: list[dict[str, Any]]) -> None:
    """Where the label holder has no columns nothing is known of a label before its noise; the job has its own forms."""
    table = JobTable.model_validate(job)
    for bare, stages in ((False, 2), (True, 1)):
        plans = [plan for row in recommended_rows(table, bare=bare) for plan in row.plans()]
        assert [plan.settings["xi"] for plan in plans[:5]] == [0.1, 0.25, 0.5, 0.75, 1.0]
        assert [plan.settings for plan in plans[5:7]] == [{"epsilon": it, "stages": stages} for it in (0.5, 1.0)]
        assert [plan.settings for plan in plans[7:]] == settings
        for plan in plans:
            plan.job(table)  # whatever depth the file gives


def _alone(folder: Path, cycle: tuple[str, ...]) -> float | None:
    """The AUC of the label holder alone beside an additive model in turns."""
    form = f'model = "additive"\ncycle = {json.dumps(cycle)}\nkey_bits = 1024\nn_estimators = 6\n'
    classes = 'objective = "multi:softprob"\nmulti_strategy = "multi_output_tree"\n'
    experiment = load(_file(folder, job=form + classes, data=ENCODED), ExperimentFile)
    kept = opened(experiment, folder / "-".join(("kept", *cycle)), base=folder, place="empty", name="sweep")
    (tables := folder / "-".join(("tables", *cycle))).mkdir()
    return defence_points.trained(kept.experiment, kept.table, Plan(), 0, tables, "centralised").test[ALONE]["auc"]


def test_the_label_holder_alone(folder: Path) -> None:
    """By its own columns; without any it guesses the class shares, with an AUC of one half."""
    for number, columns in enumerate(('["a", "kind"]', "[]")):
        path = _file(folder, data=ENCODED, rows=("id_lmid = { xi = 1 }",))
        path.write_text(path.read_text().replace('["a", "kind"]', columns))
        experiment = load(path, ExperimentFile)
        kept = opened(experiment, folder / f"kept-{number}", base=folder, place="empty", name="sweep")
        (tables := folder / f"tables-{number}").mkdir()
        result = defence_points.trained(kept.experiment, kept.table, Plan(), 0, tables, "centralised")
        auc = result.test[ALONE]["auc"]
        assert auc is not None
        assert (auc == 0.5) == (columns == "[]")
        assert result.records == {"train": 120, "test": 30}
    turns = [("clinic", "lab", "shop"), ("clinic", "clinic", "shop", "lab")]
    reached = [_alone(folder, cycle) for cycle in turns]  # alone it has every turn, whatever the others' are
    assert reached[0] == reached[1]
    shares = by_shares(np.array([0, 0, 1]), np.array([0, 1]), load(_file(folder, job=""), ExperimentFile).job.params())
    assert shares["accuracy"] == 0.5


def test_what_is_guessed() -> None:
    """Of groups the accuracy, never below own columns or the largest class; by known labels the AUC, if one is rare."""
    labels = np.array([0] * 7 + [1] * 3)
    assert by_groups({"cl": 0.6, "uni": 0.65}, "cl", labels) == Guess(before=0.7, after=0.7)
    assert by_groups({"cl": 0.75, "uni": 0.9}, "cl", labels) == Guess(before=0.75, after=0.9)
    usual: Any = {"before_how": "", "reached_how": "", "error": 0.0, "tries": 1, "details": "known", "drawn": 0.01}
    found = Compared(measure="AUC", before=0.6, reached=0.8, **usual)
    assert by_names(found) == Guess(before=0.6, after=0.8, drawn=0.01)
    assert by_names(judged("lab", "labels", "clinic", [found], reason="", details="")) == by_names(found)
    assert by_names(found.model_copy(update={"measure": "accuracy"})) == Guess(before=0.5, after=0.5)
    assert by_names(None) == Guess(before=0.5, after=0.5)
    assert (measure_of(labels), measure_of(np.array([0] * 8 + [1] * 2))) == ("accuracy", "AUC")


def test_the_grid_has_both_directions(folder: Path) -> None:
    """A point for each m and for each table of the job, with its own files; the label holder records for the attack."""
    rows = ("min_cell_records = [2, 3]", "job = { max_depth = 2, max_bin = 8 }", "job = { max_bin = [5] }")
    experiment = load(_file(folder, rows, "key_bits = 1024\n"), ExperimentFile)
    plans = experiment.plans
    assert [plan.word for plan in plans] == [
        *("none", "min_cell_records-2", "min_cell_records-3", "job-max_depth-2-max_bin-8", "job-max_bin-5")
    ]
    merged, shallow = experiment.planned(plans[1]), experiment.planned(plans[3])
    assert merged.min_cell_records == {"lab": 2, "shop": 2}
    assert (shallow.min_cell_records, shallow.job.max_depth, shallow.job.max_bin) == ({}, 2, 8)
    assert shallow.job.key_bits == 1024
    assert [party.record for party in merged.party] == ["received", None, None]


def _audited(read: float | None, why: str = "") -> dict[str, Any]:
    """Figures of an audit's attack on columns."""
    placed = {name: read and {"placed": read} for name in ("together", "given")}
    explained = read and {"reached": 0.8}
    return {**placed, "left_sets": {"placed": 0.1}, "explained": explained, "reasons": {"sums": why} if why else {}}


def test_cells_are_those_of_the_audit() -> None:
    """The attack's shares; where nothing is offered left sets are read alone, and any other reason is no figure.

    What left sets alone place was read, whatever the sums add to it. The variance explained is the audit's own, none
    without columns of numbers.
    """
    alone = Cells(read=0.1, left_sets=0.1, given=0.1, explained=0.0)
    assert defence_points.cells_of(_audited(0.05)) == Cells(read=0.1, left_sets=0.1, given=0.1, explained=0.8)
    texts = _audited(0.5) | {"explained": None}
    assert defence_points.cells_of(texts) == Cells(read=0.5, left_sets=0.1, given=0.5, explained=None)
    assert defence_points.cells_of(_audited(None, NOTHING_OFFERED)) == alone
    assert defence_points.cells_of(_audited(None, "too many cells")) is None


def _result(cells: dict[str, float]) -> TrainingResult:
    explained = {"shop": 0.8}
    return TrainingResult(
        test={"none": {"auc": 0.9, "accuracy": 0.8}, ALONE: {"auc": 0.7, "accuracy": 0.6}},
        v_measure={"lab": {"uni": 0.3, "cl": 0.2}, "shop": {"uni": 0.4, "cl": 0.1}},
        measure="accuracy",
        guesses={"lab": Guess(before=0.5, after=0.6), "shop": Guess(before=0.4, after=0.7)},
        cells={
            name: Cells(read=read, left_sets=0.1, given=0.9, explained=explained.get(name))
            for name, read in cells.items()
        },
        unread={} if "shop" in cells else {"shop": "too many cells"},
        classes=3,
        local_subtrees=0,
        hidden_nodes=0,
        ciphertexts={},
        records={"train": 120, "test": 30},
        seconds=1.0,
    )


def test_both_directions_of_a_document(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cells of the party of which most is read, a column and a panel for them; unmeasured ones are said to be so."""
    experiment, plan = load(_file(folder, (), more=QUICK), ExperimentFile), Plan()
    results = [_result({"lab": 0.5, "shop": 0.3}), _result({"lab": 0.2, "shop": 0.3})]
    document = frontier.document(experiment, "00", "federation", {plan: results})
    path = tmp_path / "frontier.json"
    path.write_text(document.model_dump_json())
    assert load_frontier(path) == document
    (point,) = document.points
    assert ({name: it.mean for name, it in point.v_measure.items()}, point.seeds) == ({"uni": 0.4, "cl": 0.2}, [0, 1])
    assert point.cells.read.mean == pytest.approx(0.4)
    assert (point.added.mean, point.gain.mean, document.before.mean) == pytest.approx((0.3, 0.2, 0.4))
    assert point.cells.explained.mean == pytest.approx(0.8)
    assert point.cells_of["lab"].explained.mean is None
    assert document.points[0].cells_of["lab"].read.mean == pytest.approx(0.35)
    drawn = picture(document)
    assert [it.title for it in (*of_attacks(document), *of_columns(document))] == [
        *("UNI", "Columns, by opened sums", "Columns of numbers, by opened sums")
    ]
    assert "variance explained 80.0 ± 0.0&#160;%" in drawn
    assert "cells read 40.0 ± 14.1&#160;% (10.0–90.0)" in drawn
    assert "Columns, by opened sums" in html(document)
    print_frontier(document)
    told = capsys.readouterr().out
    assert "Cells read: the share of the cells" in told
    assert "Variance explained: of the places" in told
    lacking = frontier.document(experiment, "00", "federation", {plan: [_result({"lab": 0.5})] * 2})
    assert "Cells of shop were not read, none: too many cells." in lacking.says
    unmeasured = frontier.document(experiment, "00", "centralised", {plan: [_result({})]})
    assert any(said.startswith("Cells read are not measured") for said in unmeasured.says)
    assert of_columns(unmeasured) == []
    assert unmeasured.points[0].cells is None


def test_figures_over_seeds() -> None:
    """Mean and sample deviation; one seed has none, and an undefined figure makes the mean undefined."""
    found = measured([0.5, 0.7])
    assert (found.mean, found.sd) == pytest.approx((0.6, math.sqrt(0.02)))
    assert measured([0.5]) == Measured(mean=0.5)
    assert measured([0.5, None]) == Measured(mean=None)


@pytest.mark.second_tier
def test_the_table_for_people(folder: Path) -> None:
    """Without --json there is a table of all points and the place of the page; progress is on standard error."""
    outcome = treetap("frontier", _file(folder, ROWS[:1], data=ENCODED, more=QUICK), folder=folder)
    assert outcome.status == 0
    assert "no defence" in outcome.out
    assert "frontier: runs/sweep/frontier.html" in outcome.out
    assert "4 trainings, 0 of them finished already" in outcome.err
    twice = _file(folder, ("reduced_leakage = { trees = [1, 1] }",))
    assert "has reduced_leakage-1 twice" in refused(treetap("frontier", twice))


def test_a_frontier_says_why_it_lacks_the_private_point(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A party refuses when the job begins; the other points stay."""
    real: Callable[..., Any] = defence_points.trained

    def train(experiment: Any, table: Any, plan: Plan, seed: int, place: Path, _: str) -> Any:
        if "privacy" in plan.changes:
            raise BadInput("shop: has sets of categories\nset encode = 'ordinal'")
        return real(experiment, table, plan, seed, place, "centralised")

    monkeypatch.setattr(defence_points, "trained", train)
    file = _file(folder, ("reduced_leakage = { trees = 1 }",), data=ENCODED, more=QUICK)
    frontier.run_file(file, as_json=True, trainer="federation", workdir=folder / "made", resume=None)
    made = load_frontier(folder / "made" / "frontier.json")
    assert [point.defence for point in made.points] == ["none", "reduced_leakage"]
    says = "Without a point of job-privacy-private: shop: has sets of categories; set encode = 'ordinal'."
    assert says in made.says


@pytest.mark.campaign
def test_a_federation_gives_the_points_of_the_joined_table(folder: Path) -> None:
    """A point by processes and sockets has the figures of the centralised trainer, and its costs beside them.

    A second training, with label DP, gives the points of all repairs, whose predictions the run has checked.
    """
    one, two = "id_lmid = { xi = 0.1 }", "label_dp = { epsilon = 2, stages = 2 }\ngrafting = true"
    data, more = ENCODED.replace("[0, 1]", "3"), "[audit]\nsettings = {starts = 1}\n"
    _run(_file(folder, (one,), data=data, more=more, others=("lab",)), folder / "joined")
    both = _file(folder, (one, two), data=data, more=more, others=("lab",))
    outcome = treetap("frontier", both, "--trainer", "federation", "--json", folder=folder)
    assert outcome.status == 0, outcome.err
    kept = folder / "runs" / "sweep"
    there, here = load_frontier(folder / "joined" / "frontier.json"), load_frontier(kept / "frontier.json")
    unread = [point.model_copy(update={"cells": None, "cells_of": {}}) for point in here.points[:2]]
    assert unread == there.points
    assert here.alone == there.alone
    assert here.trainer == "federation"
    assert all(point.cells is not None and point.cells.read.mean is not None for point in here.points)
    assert [point.defence for point in here.points[2:-1]] == list(LABEL_DP_VARIANTS)
    assert all(point.v_measure == here.points[2].v_measure for point in here.points[2:-1])
    private = here.points[-1]
    assert (private.settings, private.auc) == ({"privacy": "private"}, here.points[0].auc)
    assert private.cells.read.mean < here.points[0].cells.read.mean, "left sets alone"
    assert any(note.startswith("Without a point of job-privacy-private: a training on the") for note in there.says)
    assert all(point.auc.mean is not None for point in here.points)
    results = [
        json.loads((folder_of / "points.json").read_text())["points"]["id_lmid-0.1-shown-seed-3"]
        for folder_of in (folder / "joined", kept)
    ]
    assert results[0]["local_subtrees"] == results[1]["local_subtrees"] > 0
    assert results[0]["hidden_nodes"] == results[1]["hidden_nodes"]
    assert results[1]["ciphertexts"]["encrypted_labels"] == 120
