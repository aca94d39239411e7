"""`treetap audit`, `treetap attack` and `[audit]` in an experiment: from a run's folder to figures and a report."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.attacks.frontiers import frontier, point
from tests.commands.command import refused, treetap
from treetap.attacks.registry import Needs, rows
from treetap.attacks.scores import score
from treetap.commands.certs.authority import create_authority
from treetap.lab.local_federation import to_toml
from treetap.ops.certs.requests import revoke

pytestmark = pytest.mark.xdist_group("audit")

ROWS, COLUMNS = 120, 6
GROUPING, KNOWING = ["cl", "id2graph", "id2graph-quotient"], list(rows(Needs.KNOWN_LABELS))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of an audited experiment, and what it printed."""
    folder = tmp_path_factory.mktemp("audited")
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ROWS, COLUMNS))
    label = (x[:, 1] + 0.7 * x[:, 3] + 0.7 * x[:, 5] > 0).astype(int)
    content = {f"x{j}": x[:, j] for j in range(COLUMNS)} | {"y": label + 1}
    pq.write_table(pa.table(content), folder / "data.parquet")
    experiment = {
        "data": {"path": "data.parquet", "label": "y", "seed": 3},
        "job": {"n_estimators": 3, "max_depth": 3, "max_bin": 8, "key_bits": 1024},
        "audit": {"attacks": GROUPING},
        "party": [
            {"name": "bank", "columns": ["x0", "x1"], "labels": True},
            {"name": "shop", "columns": ["x2", "x3"]},
            {"name": "telco", "columns": ["x4", "x5"]},
        ],
    }
    (folder / "exp.toml").write_text(to_toml(experiment))
    done = treetap("experiment", folder / "exp.toml", "--json", "--keep-keys", "--workdir", folder / "work")
    assert done.status == 0, done.err
    (found,) = json.loads(done.out)["runs"]
    return folder / "work" / "seed-3", found


@pytest.mark.second_tier
def test_transcripts_of_real_processes_are_signed(run: tuple[Path, dict[str, Any]]) -> None:
    """Whole, by each party itself; another authority, and a signature of another party, are tampering."""
    folder, _ = run
    for name, party in json.loads((folder / "audit.json").read_text())["parties"].items():
        assert party["signed"].startswith("signed to the end by ")
        assert "of the given authority); job digest " in party["signed"]
        assert f"by '{name}'" in party["signed"]
    shown = treetap(
        "transcript", folder / "shop" / "state" / "transcripts" / "experiment", "--ca", folder / "certs" / "ca.crt"
    )
    assert "of the given authority" in shown.out
    path, _, _ = revoke(folder / "certs", ["shop"])
    more = ("--attacks", "uni", "--json", "--html", folder / "uni.html", "--revoked", path)
    found = json.loads(treetap("audit", folder, *more).out)["parties"]
    assert "of the given authority, revoked on " in found["shop"]["signed"]
    assert found["telco"]["signed"].count("of the given authority, not revoked); job digest ")
    create_authority(folder / "other")
    line = refused(treetap("audit", folder, "--ca", folder / "other" / "ca.crt"))
    assert "was not issued by the given authority" in line


@pytest.mark.second_tier
def test_a_report_does_not_follow_a_link_of_the_run(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """A run's folder may come from elsewhere: the report that it gets by itself replaces a link."""
    folder = tmp_path / "run"
    shutil.copytree(run[0], folder)
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (folder / "audit.html").unlink()
    (folder / "audit.html").symlink_to(mine)
    done = treetap("audit", folder, "--last-tree-only", "--attacks", "uni", "--json")
    assert done.status == 0
    assert mine.read_text() == "mine"
    assert (folder / "audit.html").read_text().startswith("<!")


@pytest.mark.second_tier
def test_an_experiment_scores_every_attack_on_every_feature_party(run: tuple[Path, dict[str, Any]]) -> None:
    """Figures by party and attack; the document and the report lie in the run's folder."""
    folder, found = run
    assert set(found["audit"]) == {"bank", "shop", "telco"}
    assert set(found["audit"]["bank"]) == {"columns_read"}
    for attacks in (found["audit"][name] for name in ("shop", "telco")):
        assert set(attacks) == {*GROUPING, *KNOWING}
        for name in GROUPING:
            each = attacks[name]
            assert 0 <= each["v_measure"] <= 1
            assert len(each["by_tree"]) == 3
            assert max(each["by_tree"]) == each["v_measure"]
            assert name == "cl" or each["by_tree"].index(each["v_measure"]) + 1 == each["after_trees"]
            assert each["accuracy_by_tree"][(each["after_trees"] or 1) - 1] == each["accuracy"]
    assert found["audit_report"] == str(folder / "audit.html")
    document = json.loads((folder / "audit.json").read_text())
    shop = document["parties"]["shop"]
    assert shop["attacks"] | {name: shop["known_labels"][name] for name in KNOWING} == found["audit"]["shop"]
    assert document["class_names"] == ["1", "2"]
    assert all(row["nats"] >= 0 for row in document["parties"]["shop"]["bounds"])


@pytest.mark.campaign
def test_audit_of_a_moved_folder_finds_the_same(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """audit.toml has relative paths: the folder can be sent; the figures depend on the transcripts alone."""
    folder, found = run
    shutil.copytree(folder, tmp_path / "sent")
    done = treetap("audit", tmp_path / "sent", "--json", "--html", tmp_path / "report.html")
    assert done.status == 0, done.err
    document = json.loads(done.out)
    for party, attacks in ((name, found["audit"][name]) for name in ("shop", "telco")):
        for name in GROUPING:
            assert document["parties"][party]["attacks"][name]["by_tree"] == attacks[name]["by_tree"]
        for name in KNOWING:
            again = document["parties"][party]["known_labels"][name]
            assert again | {"seconds": 0} == attacks[name] | {"seconds": 0}
    assert "<svg" in (tmp_path / "report.html").read_text()


@pytest.mark.campaign
def test_a_frontier_is_known_by_its_digest(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """An experiment's audit.toml has its table's digest: a frontier with it is of this table, another one is not."""
    folder, _ = run
    digest = tomllib.loads((folder / "audit.toml").read_text())["data_digest"]
    made = frontier(point("id_lmid", {"xi": 0.5, "counts": "shown"}, 0.88, 0.35))
    path = tmp_path / "frontier.json"
    words = ["audit", str(folder), "--attacks", "cl", "--last-tree-only", "--html", str(tmp_path / "r")]
    assert tomllib.loads((folder / "audit.toml").read_text())["defences"] == {}
    for content, whose in ((digest, ("this table", "bank.csv")), ("00" * 32, None)):
        path.write_text(made.model_copy(update={"data_digest": content}).model_dump_json())
        done = treetap(*words, "--json", "--frontier", path)
        assert done.status == 0, done.err
        advice = json.loads(done.out)["advice"]
        source = advice["source"]
        assert (None if source is None else (source["whose"], source["table"])) == whose
    path.write_text(made.model_copy(update={"protocol": "forest"}).model_dump_json())
    assert "was measured with protocol 'forest'" in refused(treetap(*words, "--frontier", path))


@pytest.mark.second_tier
def test_an_experiment_with_a_frontier_of_another_protocol_does_not_start(
    run: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Its audit would refuse it after the training: it is refused before, by the path from the file's folder."""
    source = run[0].parent.parent
    (tmp_path / "other.json").write_text(frontier(protocol="forest").model_dump_json())
    content = tomllib.loads((source / "exp.toml").read_text())
    content["audit"]["frontier"] = "other.json"
    content["data"]["path"] = str(source / "data.parquet")
    (tmp_path / "exp.toml").write_text(to_toml(content))
    outcome = treetap("experiment", tmp_path / "exp.toml", "--workdir", tmp_path / "work")
    assert f"{tmp_path / 'other.json'}: was measured with protocol 'forest'" in refused(outcome)
    assert not (tmp_path / "work").exists()


@pytest.mark.campaign
def test_an_experiment_s_folder_is_all_its_runs(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """In the order of their numbers, each report in its run's folder, figures and limits by run; a run that kept
    nothing is named, and without any the message says what keeps transcripts."""
    folder = tmp_path / "exp"
    for name in ("seed-10", "seed-2"):
        shutil.copytree(run[0], folder / name)
        (folder / name / "audit.html").unlink()
    shutil.copy(run[0].parent / "experiment.toml", folder)
    more = ("--attacks", "uni", "--last-tree-only")
    done = treetap("audit", folder, *more, "--json", "--document", tmp_path / "all.json", "--fail-above", "any=0")
    assert done.status == 1, done.err
    found = json.loads(done.out)["runs"]
    assert list(found) == ["seed-2", "seed-10"]
    assert found["seed-2"]["parties"]["shop"]["bounds"] == found["seed-10"]["parties"]["shop"]["bounds"]
    assert json.loads((tmp_path / "all.json").read_text())["runs"] == found
    assert all((folder / name / "audit.html").is_file() for name in found)
    assert "seed-2: shop: uni reaches" in done.err
    assert "seed-10: shop: uni reaches" in done.err
    shown = treetap("audit", folder, *more).out
    assert shown.index(" seed-2 ") < shown.index(f"report: {folder / 'seed-2'}") < shown.index(" seed-10 ")
    assert "each run of an experiment has its report" in refused(treetap("audit", folder, "--html", tmp_path / "r"))
    (folder / "seed-10" / "audit.toml").unlink()
    assert (
        f"note: {folder / 'seed-10'}: holds no audit.toml, hence is not audited" in treetap("audit", folder, *more).err
    )
    assert "--allow-partial" in refused(treetap("audit", folder, *more, "--fail-above", "any=1"))
    (folder / "seed-2" / "audit.toml").unlink()
    for path in (folder, folder / "seed-2"):
        said = refused(treetap("audit", path))
        assert f"{path}: the experiment kept no transcripts to audit: add a line [audit] to its file" in said


@pytest.mark.second_tier
def test_fail_above_is_status_1_and_says_who(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """A pipeline stops where an attack finds more than is allowed; a form of ID2Graph counts as ID2Graph."""
    folder, found = run
    best = max(each["id2graph-quotient"]["by_tree"][-1] for each in map(found["audit"].get, ("shop", "telco")))
    words = ["audit", str(folder), "--attacks", "id2graph-quotient", "--last-tree-only", "--html", str(tmp_path / "r")]
    assert treetap(*words, "--fail-above", f"any={best + 0.001}", "--fail-above", "information=1").status == 0
    above = treetap(*words, "--fail-above", f"id2graph={best - 0.001}")
    assert above.status == 1
    assert "id2graph-quotient reaches a V-measure of" in above.err
    assert "Traceback" not in above.err


@pytest.mark.second_tier
def test_attack_is_scored_as_the_audit_scores_it(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """One attack by hand: same figure, and the written groups give it again."""
    folder, found = run
    table, out = folder / "shop" / "train.parquet", tmp_path / "groups.parquet"
    done = treetap(
        *("attack", "id2graph-quotient", folder / "shop" / "state", "--columns", table, "--party", "shop"),
        *("--id", _id(folder), "--labels", folder / "bank" / "train.parquet", "--label", "y", "--json", "--out", out),
    )
    assert done.status == 0, done.err
    report = json.loads(done.out)
    assert report["v_measure"] == pytest.approx(found["audit"]["shop"]["id2graph-quotient"]["by_tree"][-1])
    groups = pq.read_table(out).to_pydict()
    labels = pq.read_table(folder / "bank" / "train.parquet").to_pydict()
    truth = dict(zip(map(str, labels[_id(folder)]), labels["y"], strict=True))
    again = score([truth[name] for name in map(str, groups[_id(folder)])], groups["group"])
    assert again.v_measure == pytest.approx(report["v_measure"])


@pytest.mark.second_tier
def test_settings_of_an_attack_change_what_it_does(run: tuple[Path, dict[str, Any]]) -> None:
    """What `--set` names is among the parameters of the report, in the place of the default."""
    folder, _ = run
    words = ["attack", "id2graph-chunked", folder / "shop" / "state", "--party", "shop", "--classes", "2", "--json"]
    report = json.loads(treetap(*words, "--set", "chunk_size=40", "--set", "chunk_edges=linked").out)
    assert (report["parameters"]["chunk_size"], report["parameters"]["chunk_edges"]) == (40, "linked")
    assert report["parameters"]["alpha"] == 3.0


@pytest.mark.second_tier
def test_received_only_knows_no_more(run: tuple[Path, dict[str, Any]]) -> None:
    """Without own splits and differences there are no more leaves than with them."""
    folder, _ = run
    words = ["attack", "uni", folder / "telco" / "state", "--party", "telco", "--classes", "2", "--json"]
    whole, received = (json.loads(treetap(*words, *more).out) for more in ([], ["--received-only"]))
    assert sum(received["leaves"]) <= sum(whole["leaves"])
    assert received["received_only"]
    assert whole["v_measure"] is None


def _id(folder: Path) -> str:
    return str(pq.read_schema(folder / "bank" / "train.parquet").names[0])


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["audit", "{tmp}"],
            "holds no audit.toml; treetap demo --workdir writes one, and an experiment with a line [audit]",
        ),
        (["audit", "{run}", "--attacks", "guess"], "unknown attack 'guess'"),
        (["audit", "{run}", "--fail-above", "id2graph"], "say LIMIT=V"),
        (["audit", "{run}", "--attacks", "cl", "--fail-above", "uni=0.1", "--html", "{tmp}/r"], "was not run"),
        (["audit", "{run}", "--job", "other"], "other"),
        (["attack", "guess", "{run}/shop/state", "--party", "shop", "--classes", "2"], "attack 'guess': unknown"),
        (["attack", "uni+cl", "{run}/shop/state", "--party", "shop"], "say --classes C"),
        (
            ["attack", "uni", "{run}/shop/state", "--party", "shop", "--classes", "2", "--set", "chunks=5"],
            "unknown: chunks; known: discount",
        ),
        (
            ["attack", "uni", "{run}/shop/state", "--party", "shop", "--classes", "2", "--set", "chunk_size=1"],
            "chunk_size must be a whole number in [2,",
        ),
        (["attack", "uni+cl", "{run}/shop/state", "--party", "shop", "--classes", "0"], "not 0"),
        (["audit", "{run}", "--fail-above", "id2graph=nan"], "with V from 0 to 1"),
        (["audit", "{run}", "--fail-above", "guess=0.1"], "unknown limit 'guess'"),
        (
            ["audit", "{run}", "--attacks", "cl", "--fail-above", "any=0.1", "--html", "{tmp}/r"],
            "no attack but cl was run",
        ),
        (["audit", "{run}", "--html", "{tmp}/nowhere/r"], "no such folder"),
        (
            [
                "attack",
                "cl",
                "{run}/shop/state",
                "--columns",
                "{run}/telco/train.parquet",
                "--classes",
                "2",
                "--id",
                "treetap_id",
            ],
            "another party's table",
        ),
        (["attack", "uni", "{run}/bank/state", "--party", "bank", "--classes", "2"], "{run}/bank/state"),
        (["attack", "cl", "{run}/shop/state", "--party", "shop", "--classes", "2"], "say --columns FILE"),
        (["attack", "uni", "{run}/shop/state", "--classes", "2", "--labels", "l.csv"], "go together"),
    ],
)
def test_bad_input_is_status_2_and_one_message(
    run: tuple[Path, dict[str, Any]], tmp_path: Path, words: list[str], says: str
) -> None:
    """Each names what is wrong; no traceback, nothing on standard output."""
    said = refused(treetap(*(word.format(run=run[0], tmp=tmp_path) for word in words)))
    assert says.format(run=run[0]) in said


@pytest.mark.second_tier
def test_a_limit_is_not_judged_by_half_a_transcript(run: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Records missing at the end show in no chain: the gate says so instead of passing, unless it is told to."""
    shutil.copytree(run[0], tmp_path / "sent")
    folder = tmp_path / "sent" / "shop" / "state" / "transcripts" / "experiment"
    file = next(folder.glob("*.tap"))
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 3 // 4])
    words = ["audit", str(tmp_path / "sent"), "--last-tree-only", "--fail-above", "id2graph=1"]
    assert "--allow-partial" in refused(treetap(*words))
    assert treetap(*words, "--allow-partial").status == 0


@pytest.mark.campaign
def test_a_regression_is_reported_without_scores(tmp_path: Path) -> None:
    """Numbers for labels: the run ends well, the report says what was received and why nothing is scored."""
    rng = np.random.default_rng(1)
    content = {f"x{j}": rng.normal(size=60) for j in range(4)}
    pq.write_table(pa.table(content | {"y": content["x1"] + content["x3"]}), tmp_path / "data.parquet")
    experiment = {
        "data": {"path": "data.parquet", "label": "y", "compare": False},
        "job": {"objective": "reg:squarederror", "n_estimators": 1, "max_depth": 2, "max_bin": 4, "key_bits": 1024},
        "audit": {},
        "party": [{"name": "bank", "columns": ["x0"], "labels": True}, {"name": "shop", "columns": ["x1", "x2", "x3"]}],
    }
    (tmp_path / "exp.toml").write_text(to_toml(experiment))
    done = treetap("experiment", tmp_path / "exp.toml", "--workdir", tmp_path / "work")
    assert done.status == 0, done.err
    page = (tmp_path / "work" / "seed-0" / "audit.html").read_text()
    assert "The label is a number, not a class" in page
    assert "What lowers this" not in page
    said = refused(treetap("audit", tmp_path / "work" / "seed-0", "--fail-above", "id2graph=0.5"))
    assert "the label is a number" in said
