"""`treetap frontier`: its file, resumption, refusals, document and page."""

from __future__ import annotations

import errno
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.commands.command import refused, treetap
from treetap.commands.frontier import run, trainings
from treetap.commands.frontier.frontier_file import LABEL_DP_VARIANTS, FrontierFile
from treetap.commands.frontier.page import html, panels, picture, print_frontier, setting
from treetap.commands.frontier.run import measured
from treetap.commands.frontier.stored import Cells, TrainingResult
from treetap.errors import BadInput, ConfigError, TreetapError
from treetap.privacy.frontiers import FrontierDocument, Measured, load_frontier
from treetap.strict import load

DATA = 'path = "t.csv"\nlabel = "y"\nseed = [0, 1]\n'
JOB = 'protocol = "forest"\nkey_bits = 1024\nn_estimators = 3\nmax_depth = 4\n'
FRONTIER = 'trainer = "centralised"\nid_lmid = [0.1, 0.5]\nreduced_leakage = [1]\n'
#: Tests of one document run in one worker, which makes it once.
of_one_document = pytest.mark.xdist_group("frontier-document")
#: The same with the quickest attacks.
QUICK = FRONTIER + 'attacks = ["uni"]\nsettings = {starts = 1}\n'


def _file(
    folder: Path,
    frontier: str = FRONTIER,
    job: str = JOB,
    data: str = DATA,
    more: str = "",
    others: tuple[str, ...] = ("lab", "shop"),
) -> Path:
    parties = '[[party]]\nname = "clinic"\nlabels = true\ncolumns = ["a", "kind"]\n'
    parties += "".join(f'[[party]]\nname = "{name}"\nshare = 0.5\n' for name in others)
    path = folder / "sweep.toml"
    path.write_text(f"[data]\n{data}{parties}[job]\n{job}[frontier]\n{frontier}{more}", encoding="utf-8")
    return path


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
def encoded() -> str:
    """The data of a file whose text is encoded."""
    return DATA + 'encode = "ordinal"\n'


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The trainings that are done from now on, by name."""
    done: list[str] = []
    real: Callable[..., Any] = trainings.trained_centrally

    def train(experiment: Any, table: Any, training: Any, folder: Path) -> Any:
        done.append(training.word)
        return real(experiment, table, training, folder)

    monkeypatch.setattr(trainings, "trained_centrally", train)
    return done


@pytest.mark.parametrize(
    ("frontier", "job", "expected"),
    [
        ("id_lmind = [0.5]\n", JOB, "frontier.id_lmind: unknown key"),
        ("id_lmid = [0.5, -0.1]\n", JOB, "frontier.id_lmid.[2]: Input should be greater than or equal to 0"),
        ("id_lmid = [inf]\n", JOB, "frontier.id_lmid.[1]: Input should be a finite number"),
        ("reduced_leakage = [0]\n", JOB, "frontier.reduced_leakage.[1]: Input should be greater than or equal to 1"),
        ("id_lmid = [0.5, 0.5]\n", JOB, "id_lmid names a value twice"),
        ("none = false\n", JOB, "has no point"),
        ("min_cell_records = [1]\n", JOB, "frontier.min_cell_records.[1]: Input should be greater than or equal to 2"),
        ("job = [{max_depth = 2}, {max_depth = 2}]\n", JOB, "job names settings twice"),
        ("job = [{protocol = 'boosting'}]\n", JOB, "job sets protocol, which all points of a frontier share"),
        ("job = [{gradient_bits = 5}]\n", JOB, "frontier.job, {'gradient_bits': 5}: "),
        ("job = [{gradient_bits = 1}]\n", "key_bits = 1024\n", "frontier.job, {'gradient_bits': 1}: "),
        ("sums = {second = 1}\n", JOB, "second"),
        ("label_dp = [0.0]\n", JOB, "frontier.label_dp.[1]: Input should be greater than 0"),
        ("grafting = true\n", JOB, "grafting = true repairs models of noisy labels: add label_dp"),
        ('attacks = ["guess"]\n', JOB, "guess"),
        ("settings = {alpha = -1.0}\n", JOB, "alpha must be a number"),
        ("", 'objective = "reg:squarederror"\n', "a regression has numbers for labels"),
    ],
)
def test_points_that_cannot_be_trained(frontier: str, job: str, expected: str, folder: Path) -> None:
    """An unknown defence, a parameter out of range, an unknown attack and a regression are refused by name."""
    with pytest.raises(ConfigError, match="wrong:") as raised:
        load(_file(folder, frontier, job), FrontierFile)
    assert expected in str(raised.value)


def test_protocols_and_tables_that_a_frontier_does_not_have(folder: Path) -> None:
    """A frontier of PIVODL is refused, and a file that says what the frontier sets itself."""
    file = folder / "sweep.toml"
    shared = "".join(f'[[party]]\nname = "{name}"\nlabel_share = 0.5\nshare = 0.5\n' for name in "pq")
    job = '[job]\nprotocol = "pivodl"\nepsilon = 8\ndelta = 1e-5\nclip = 2\ninstance_threshold = 10\n'
    file.write_text(f"[data]\n{DATA}{shared}{job}[frontier]\n")
    with pytest.raises(ConfigError, match="its labels have no one holder"):
        load(file, FrontierFile)
    for more, expected in (
        ("[audit]\n", "[audit] is not for a frontier"),
        ("[predict]\n", "[predict] is not for a frontier"),
        ("[defences]\nreduced_leakage = {trees = 1}\n", "[defences] is not for a frontier"),
    ):
        with pytest.raises(ConfigError) as raised:
            load(_file(folder, more=more), FrontierFile)
        assert expected in str(raised.value)
    with pytest.raises(ConfigError, match="compare = true is not for a frontier"):
        load(_file(folder, data=DATA + "compare = true\n"), FrontierFile)
    with pytest.raises(ConfigError, match="cv is not for a frontier"):
        load(_file(folder, data=DATA + "cv = 3\n"), FrontierFile)
    with pytest.raises(ConfigError, match=r"weight in \[data\] is not for a frontier"):
        load(_file(folder, job="key_bits = 1024\n", data=DATA + 'weight = "w"\n'), FrontierFile)


@pytest.mark.second_tier
def test_networks_have_no_frontier(folder: Path) -> None:
    """Its attacks and most of its defences are of trees; the refusal names the command that has theirs."""
    pytest.importorskip("torch", reason="needs treetap[neural]")
    with pytest.raises(ConfigError, match=r"'splitnn' grows no trees, .* 'treetap experiment', once for each point"):
        load(_file(folder, job='protocol = "splitnn"\n'), FrontierFile)


@pytest.mark.second_tier
def test_a_finished_training_is_not_repeated(
    folder: Path, encoded: str, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every point is trained once per seed; the same command then trains nothing, or just what was taken away."""
    file = _file(folder, QUICK, data=encoded)
    run.run_file(file, as_json=True, workdir=folder / "kept")
    first = capsys.readouterr()
    assert json.loads(first.out) == json.loads((folder / "kept" / "frontier.json").read_text())
    assert len(trained) == len(set(trained)) == 8
    assert "8/8 id_lmid-0.5-shown-seed-1: AUC 0." in first.err
    run.run_file(file, as_json=True, workdir=folder / "kept")
    assert capsys.readouterr().out == first.out
    assert len(trained) == 8
    (folder / "kept" / "points" / "none-seed-1.json").unlink()
    run.run_file(file, as_json=True, workdir=folder / "kept")
    assert trained[8:] == ["none-seed-1"]
    wider = _file(folder, QUICK.replace("0.5]", "0.5, 2]"), data=encoded)
    run.run_file(wider, as_json=True, workdir=folder / "kept")
    assert trained[9:] == ["id_lmid-2.0-shown-seed-0", "id_lmid-2.0-shown-seed-1"]


@pytest.mark.second_tier
def test_what_ctrl_c_leaves_is_kept(
    folder: Path, encoded: str, monkeypatch: pytest.MonkeyPatch, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An interruption in the third training leaves two; the same command goes on with the third."""
    real = trainings.trained_centrally

    def stopping(*given: Any) -> Any:
        if len(trained) == 2:
            raise KeyboardInterrupt
        return real(*given)

    file = _file(folder, QUICK, data=encoded)
    with monkeypatch.context() as patch:
        patch.setattr(trainings, "trained_centrally", stopping)
        with pytest.raises(KeyboardInterrupt):
            run.run_file(file, as_json=True, workdir=folder / "kept")
    said = capsys.readouterr()
    assert said.out == ""
    assert "the same command goes on with the trainings that are missing" in said.err
    assert sorted(path.name for path in (folder / "kept" / "points").iterdir()) == [
        "none-seed-0.json",
        "none-seed-1.json",
    ]
    run.run_file(file, as_json=True, workdir=folder / "kept")
    assert len(trained) == 8


def test_a_full_disk(
    folder: Path, encoded: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page that cannot be written ends the command with the file's name, and no document is printed."""

    def write(path: Path, *_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(run, "write_whole", write)
    small = 'trainer = "centralised"\nattacks = ["uni"]\nsettings = {starts = 1}\n'
    with pytest.raises(TreetapError, match=r"frontier\.json: No space left on device"):
        run.run_file(_file(folder, small, data=encoded), as_json=True, workdir=folder / "kept")
    assert capsys.readouterr().out == ""


@pytest.mark.second_tier
def test_points_of_other_data_or_settings_are_refused(folder: Path, encoded: str) -> None:
    """Another cell, job, split or attack than the folder's points have is refused by name, before any training."""
    kept, small = folder / "kept", 'trainer = "centralised"\n'
    run.run_file(_file(folder, small, data=encoded), as_json=True, workdir=kept)

    def refusal(**changes: str) -> str:
        with pytest.raises(BadInput) as raised:
            run.run_file(_file(folder, **{"frontier": small, "data": encoded, **changes}), as_json=True, workdir=kept)
        return str(raised.value)

    assert "job.max_depth was 4, now 5. " in refusal(job=JOB.replace("depth = 4", "depth = 5"))
    assert "data.test_share was 0.2, now 0.3" in refusal(data=encoded + "test_share = 0.3\n")
    assert "frontier.attacks was" in refusal(frontier=small + 'attacks = ["uni"]\n')
    _write_table(folder, seed=2)
    message = refusal()
    assert "content of the table was" in message
    assert "none-seed-0.json" in message
    (kept / "points" / "none-seed-0.json").write_text("{")
    assert "none-seed-0.json: is no finished training" in refusal()
    (folder / "other").mkdir()
    (folder / "other" / "thesis.txt").touch()
    with pytest.raises(BadInput, match="is not empty and holds no frontier"):
        run.run_file(_file(folder, small, data=encoded), as_json=True, workdir=folder / "other")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FrontierDocument]:
    """A frontier: its folder and its document."""
    folder = tmp_path_factory.mktemp("frontier")
    _write_table(folder)
    frontier = FRONTIER + "settings = {starts = 1}\n"
    kept = folder / "kept"
    run.run_file(_file(folder, frontier, data=DATA + 'encode = "ordinal"\n'), as_json=False, workdir=kept)
    return kept, load_frontier(kept / "frontier.json").document


@pytest.mark.second_tier
@of_one_document
def test_the_document(made: tuple[Path, FrontierDocument]) -> None:
    """It has each point with its figures over the seeds, and is read back as points for an adviser."""
    folder, document = made
    assert [(point.defence, setting(point)) for point in document.points] == [
        ("none", ""),
        ("reduced_leakage", "trees 1"),
        ("id_lmid", "ξ 0.1"),
        ("id_lmid", "ξ 0.5"),
    ]
    assert document.attacks == ["id2graph", "uni", "uni+cl", "cl"]
    assert document.records == {"train": 120, "test": 30}
    assert any("joined table" in sentence for sentence in document.says)
    for point in document.points:
        assert set(point.parties) == {"lab", "shop"}
        for attack, largest in point.v_measure.items():
            assert largest.mean is not None
            assert all((party[attack].mean or 0) <= largest.mean + 1e-12 for party in point.parties.values())
    frontier = load_frontier(folder / "frontier.json")
    reference = next(point for point in frontier.points if point.defence == "none")
    strict = next(point for point in frontier.points if point.settings == {"xi": 0.1, "counts": "shown"})
    assert (strict.defence, strict.table, strict.protocol, strict.seeds) == ("id_lmid", "t.csv", "forest", (0, 1))
    assert strict.v_measure["id2graph"][0] < reference.v_measure["id2graph"][0]
    assert strict.data_digest == document.data_digest != ""
    assert strict.auc_sd is not None


@pytest.mark.second_tier
def test_one_training_with_label_dp_gives_four_points(
    folder: Path, encoded: str, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Noisy labels are drawn once per ε and seed; repairs share what was seen, and have other AUCs."""
    frontier = 'trainer = "centralised"\nnone = false\nattacks = ["id2graph"]\nsettings = {starts = 1}\n'
    more = "label_dp = [0.5, 64]\nstages = 2\ngrafting = true\n"
    run.run_file(_file(folder, frontier + more, data=encoded), as_json=True, workdir=folder / "kept")
    assert len(trained) == 4
    document = FrontierDocument.model_validate_json(capsys.readouterr().out)
    assert [(point.defence, point.settings["epsilon"]) for point in document.points] == [
        (name, epsilon) for epsilon in (0.5, 64.0) for name in LABEL_DP_VARIANTS
    ]
    noisy = document.points[:4]
    assert all(point.v_measure == noisy[0].v_measure for point in noisy)
    assert len({point.auc.mean for point in noisy}) > 1
    same = document.points[4:]  # at ε = 64 no label changes, so nothing is repaired
    assert all(point.auc == same[0].auc for point in same)
    assert any("ledger of its own" in sentence for sentence in document.says)


def test_defences_that_a_job_cannot_have(folder: Path, encoded: str) -> None:
    """More own trees than the job has, and priors or trees from columns that the label holder lacks, are refused."""
    for frontier, expected in (
        ("reduced_leakage = [4]\n", "the job has 3 trees"),
        ("label_dp = [1]\nstages = 2\n", "set stages = 1"),
        ("reduced_leakage = [1]\n", "reduced_leakage and a table without columns of features do not go together"),
    ):
        file = _file(folder, frontier, data=encoded)
        if "columns" in expected or "stages" in expected:
            file.write_text(file.read_text().replace('columns = ["a", "kind"]', "columns = []"))
        with pytest.raises(ConfigError) as raised:
            run.run_file(file, as_json=True, workdir=folder / "kept")
        assert expected in str(raised.value)
    assert not (folder / "kept").exists()


@pytest.mark.second_tier
@of_one_document
def test_documents_that_are_none(made: tuple[Path, FrontierDocument], tmp_path: Path) -> None:
    """A newer version, another file and no file are refused with the path."""
    _, document = made
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps(document.model_dump() | {"version": 3}))
    with pytest.raises(BadInput, match=r"newer\.json: is no frontier of version 2 \(version: "):
        load_frontier(newer)
    with pytest.raises(BadInput, match="cannot be read"):
        load_frontier(tmp_path / "absent.json")


@pytest.mark.second_tier
@of_one_document
def test_the_page(made: tuple[Path, FrontierDocument]) -> None:
    """A panel for each attack, both reference lines in each, a marker and a row for each point; names are escaped."""
    folder, document = made
    page = (folder / "frontier.html").read_text()
    for title in ("ID2Graph", "UNI", "UNI+CL"):
        assert f"<h3>{title}</h3>" in page
    assert page.count('class="level"') == page.count('class="limit"') == 3
    assert page.count('class="mark" transform="translate(') == 3 * len(document.points) + 3
    assert page.count("<th scope=") >= len(document.points)
    assert picture(document).count('class="level"') == 3
    odd = document.model_copy(update={"table": "<b>.csv"})
    assert "<b>.csv" not in html(odd)


@pytest.mark.second_tier
@of_one_document
def test_larger_parameters_have_larger_markers(made: tuple[Path, FrontierDocument]) -> None:
    """Of one defence's points the last has the largest marker; a point without an AUC is in the table alone."""
    _, document = made
    undefined = [
        point.model_copy(update={"auc": Measured(mean=None)}) if setting(point) == "ξ 0.1" else point
        for point in document.points
    ]
    assert html(document).count("ID-LMID ξ 0.1: AUC") == 3
    assert "M3.5 0A3.5" in html(document)
    assert "M8 0A8" in html(document)
    assert "ID-LMID ξ 0.1: AUC" not in html(document.model_copy(update={"points": undefined}))


def test_the_grid_has_both_directions(folder: Path) -> None:
    """A point for each m and for each table of the job, with its own files; the label holder records for the attack."""
    frontier = "min_cell_records = [3, 2]\njob = [{max_depth = 2, max_bin = 8}, {gradient_bits = 5}]\n"
    experiment = load(_file(folder, frontier, "key_bits = 1024\n"), FrontierFile)
    plans = experiment.frontier.plans()
    assert [plan.word for plan in plans] == [
        *("none", "min_cell_records-2", "min_cell_records-3", "job-max_depth-2-max_bin-8", "job-gradient_bits-5")
    ]
    merged, shallow = experiment.planned(plans[1]), experiment.planned(plans[3])
    assert merged.min_cell_records == {"lab": 2, "shop": 2}
    assert (shallow.min_cell_records, shallow.job.max_depth, shallow.job.max_bin) == ({}, 2, 8)
    assert shallow.job.key_bits == 1024
    assert [party.record for party in merged.party] == ["received", None, None]
    assert experiment.reads_cells
    assert len({json.dumps(training.asked) for training in experiment.trainings()}) == 10
    path = _file(folder, frontier, "key_bits = 1024\n")
    path.write_text(path.read_text().replace("labels = true", 'labels = true\nrecord = "off"'))
    assert not load(path, FrontierFile).reads_cells


def _audited(read: float | None, why: str = "") -> dict[str, Any]:
    """Figures of an audit's attack on columns."""
    placed = {name: read and {"placed": read} for name in ("together", "given")}
    return {**placed, "left_sets": {"placed": 0.1}, "reasons": {"sums": why} if why else {}}


def test_cells_are_those_of_the_audit() -> None:
    """The attack's shares; nothing offered is nothing read, and any other reason is no figure."""
    assert trainings.cells_of(_audited(0.5)) == Cells(read=0.5, left_sets=0.1, given=0.5)
    assert trainings.cells_of(_audited(None, "the party offered no sums")) == Cells(read=0.0, left_sets=0.0, given=0.0)
    assert trainings.cells_of(_audited(None, "too many cells")) is None


def _result(cells: dict[str, float]) -> TrainingResult:
    return TrainingResult(
        test={"none": {"auc": 0.9, "accuracy": 0.8}},
        v_measure={name: {"uni": 0.4, "cl": 0.2} for name in ("lab", "shop")},
        cells={name: Cells(read=read, left_sets=0.1, given=0.9) for name, read in cells.items()},
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
    experiment = load(_file(folder, 'attacks = ["uni"]\n'), FrontierFile)
    (plan,) = experiment.frontier.plans()
    results = [_result({"lab": 0.5, "shop": 0.3}), _result({"lab": 0.2, "shop": 0.3})]
    document = run.document(experiment, "00", ["uni", "cl"], {plan: results})
    path = tmp_path / "frontier.json"
    path.write_text(document.model_dump_json())
    assert load_frontier(path).document == document
    (point,) = load_frontier(path).points
    assert point.cells is not None
    assert point.cells.read.mean == pytest.approx(0.4)
    assert document.points[0].cells_of["lab"].read.mean == pytest.approx(0.35)
    drawn = picture(document)
    assert [panel.title for panel in panels(document)] == ["UNI", "Columns, by opened sums"]
    assert "cells read 40.0 ± 14.1 % (10.0–90.0)" in drawn
    assert "Columns, by opened sums" in html(document)
    print_frontier(document)
    assert "Cells read: the share of the cells" in capsys.readouterr().out
    lacking = run.document(experiment, "00", ["uni", "cl"], {plan: [_result({"lab": 0.5}), _result({"lab": 0.5})]})
    assert "Cells of shop were not read, none: too many cells." in lacking.says
    central = load(_file(folder, 'trainer = "centralised"\nattacks = ["uni"]\n'), FrontierFile)
    unmeasured = run.document(central, "00", ["uni", "cl"], {plan: [_result({})]})
    assert any(said.startswith("Cells read are not measured") for said in unmeasured.says)
    assert [panel.title for panel in panels(unmeasured)] == ["UNI"]
    assert unmeasured.points[0].cells is None


def test_figures_over_seeds() -> None:
    """Mean and sample deviation; one seed has none, and an undefined figure makes the mean undefined."""
    found = measured([0.5, 0.7])
    assert (found.mean, found.sd) == pytest.approx((0.6, math.sqrt(0.02)))
    assert measured([0.5]) == Measured(mean=0.5)
    assert measured([0.5, None]) == Measured(mean=None)


@pytest.mark.second_tier
def test_the_table_for_people(folder: Path, encoded: str) -> None:
    """Without --json there is a table of all points and the place of the page; progress is on standard error."""
    file = _file(folder, QUICK.replace("id_lmid", "# id_lmid"), data=encoded)
    outcome = treetap("frontier", file, folder=folder)
    assert outcome.status == 0
    assert "no defence" in outcome.out
    assert "frontier: sweep-frontier/frontier.html" in outcome.out
    assert "4 trainings, 0 of them finished already" in outcome.err
    assert "names a value twice" in refused(treetap("frontier", _file(folder, "reduced_leakage = [1, 1]\n")))


@pytest.mark.second_tier
def test_a_federation_gives_the_points_of_the_joined_table(folder: Path, encoded: str) -> None:
    """A point by processes and sockets has the figures of the centralised trainer, and its costs beside them.

    A second training, with label DP, gives the points of all repairs, whose predictions the run has checked.
    """
    one, data = "none = false\nid_lmid = [0.1]\nsettings = {starts = 1}\n", encoded.replace("[0, 1]", "3")
    two: Any = {"data": data, "others": ("lab",)}
    run.run_file(_file(folder, 'trainer = "centralised"\n' + one, **two), as_json=True, workdir=folder / "joined")
    both = _file(folder, one + "label_dp = [2]\nstages = 2\ngrafting = true\n", **two)
    outcome = treetap("frontier", both, "--json", folder=folder)
    assert outcome.status == 0, outcome.err
    there = load_frontier(folder / "joined" / "frontier.json")
    here = load_frontier(folder / "sweep-frontier" / "frontier.json")
    assert [replace(here.points[0], cells=None)] == list(there.points)
    assert here.document.trainer == "federation"
    assert all(point.cells is not None and point.cells.read.mean is not None for point in here.points)
    assert [point.defence for point in here.points[1:]] == list(LABEL_DP_VARIANTS)
    assert all(point.v_measure == here.points[1].v_measure for point in here.points[1:])
    assert all(point.auc is not None for point in here.points)
    results = [
        json.loads((folder / name / "points" / "id_lmid-0.1-shown-seed-3.json").read_text())["result"]
        for name in ("joined", "sweep-frontier")
    ]
    assert results[0]["local_subtrees"] == results[1]["local_subtrees"] > 0
    assert results[0]["hidden_nodes"] == results[1]["hidden_nodes"]
    assert results[1]["ciphertexts"]["encrypted_labels"] == 120
