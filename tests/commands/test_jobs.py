"""Operators at their terminal: jobs handed in, watched, refused, interrupted, resumed, and transcripts read."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands.command import Outcome, end, refused, start, treetap, write
from tests.system.federations import settings, until, write_operator_file
from tests.worlds import PARTIES, world
from treetap.commands.jobs.cli import _print_checked
from treetap.errors import TreetapError
from treetap.lab.local_federation import LocalFederation
from treetap.models.store import TREES
from treetap.party.policy import merged
from treetap.wire.v2 import jobs_pb2

pytestmark = pytest.mark.xdist_group("jobs")

HERE = world(40, (1, 1, 1), seed=3)
LABEL_HOLDER, FEATURE_B, FEATURE_C = PARTIES


def _faulty(folder: Path, own: dict[str, dict[str, Any]]) -> None:
    """Give the parties further tables `bad-…`, each with one fault at one party."""
    good = {party: config["tables"]["train"] for party, config in own.items()}
    tables = {party: dict(zip(t.column_names, t.columns, strict=True)) for party, t in _tables().items()}

    def bad(name: str, party: str, suffix: str = "parquet", **changes: Any) -> None:
        path = folder / "tables" / party / f"{name}.{suffix}"
        content = pa.table(tables[party] | changes)
        pq.write_table(content, path) if suffix == "parquet" else path.write_text(_csv(content))
        for each in PARTIES:
            own[each]["tables"][name] = good[each] | ({"path": str(path)} if each == party else {})

    n = len(HERE.y)
    bad("bad-cell", FEATURE_B, "csv", b0=[*map(str, range(n - 1)), "n/a?"])
    bad("bad-class", LABEL_HOLDER, y=np.ones(n, dtype=np.int64))
    bad("bad-constant", FEATURE_C, c0=np.zeros(n))
    image = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((n, 2, 3), dtype=np.uint8))
    bad("bad-tensor", FEATURE_C, c0=image)
    bad("bad-ids", FEATURE_C, id=[f"r{i:05d}" for i in range(1, n + 1)])
    bad("bad-column", FEATURE_B)
    own[FEATURE_B]["tables"]["bad-column"] |= {"columns": ["b0", "ö" * 5000]}
    bad("bad-file", FEATURE_C)
    own[FEATURE_C]["tables"]["bad-file"] |= {"path": str(folder / "absent.parquet")}


def _tables() -> dict[str, pa.Table]:
    return {party: tables["train"] for party, (_, tables) in HERE.tables.items()}


def _csv(table: pa.Table) -> str:
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return "\n".join([",".join(table.column_names), *(",".join(map(str, row)) for row in rows)]) + "\n"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """Three parties with good and faulty tables; feature-b keeps a transcript."""
    counts = {"columns": {"preview": "count"}}
    folder = tmp_path_factory.mktemp("jobs")
    own = settings(folder, {"train": HERE})
    _faulty(folder, own)
    own[FEATURE_B]["policy"] = merged(own[FEATURE_B]["policy"], {"people": {"record": "both"}, **counts})
    own[LABEL_HOLDER]["policy"] = merged(own[LABEL_HOLDER]["policy"], counts)
    for party in (FEATURE_B, FEATURE_C):
        own[party]["policy"] = merged(own[party]["policy"], {"emits": {"COLUMN_BINS": [LABEL_HOLDER]}})
    own[LABEL_HOLDER]["data"] = str(folder)
    with LocalFederation(folder, own) as running:
        write_operator_file(running)
        yield running


def _job(federation: LocalFederation, name: str, **changes: Any) -> Path:
    job = {
        **{"label_holder": LABEL_HOLDER, "feature_parties": [FEATURE_B, FEATURE_C], "key_bits": 1024},
        **{"n_estimators": 2, "max_depth": 2, "max_bin": 4, **changes},
    }
    return write(federation.folder / f"{name}.toml", {"name": name, "job": job})


def _run(federation: LocalFederation, *words: str | Path) -> Outcome:
    return treetap(*words, folder=federation.folder)  # where operator.toml is


@pytest.fixture(scope="module")
def trained(federation: LocalFederation) -> Outcome:
    """The job `good`, handed in with --json."""
    return _run(federation, "train", _job(federation, "good"), "--json")


def test_previewing_an_alignment(federation: LocalFederation) -> None:
    """The number of common records, for people and as JSON; a policy's refusal is exit status 2 and has the remedy."""
    outcome = _run(federation, "align", LABEL_HOLDER, FEATURE_B, "--name", "look")
    assert outcome.status == 0
    assert "look: 40 records in common" in outcome.out
    outcome = _run(federation, "align", FEATURE_B, LABEL_HOLDER, "--table", "bad-ids", "--count", "--json")
    status = json.loads(outcome.out)
    assert outcome.status == 0
    assert outcome.err in ("", f"{status['job']}: running\n")  # it may have ended when it is first asked for
    assert (status["kind"], status["state"], status["protocol"]) == ("align", "finished", "psi")
    assert (status["common"], status["rows"]) == ({"records": 40, "fewer_than": 0}, [])
    assert set(status["phases"]) == {"prepare", "align"}
    outcome = _run(federation, "align", LABEL_HOLDER, FEATURE_C)
    said = outcome.err
    assert outcome.status == 2
    assert f"{FEATURE_C} takes no part in a preview" in said
    assert 'preview = "off"; if it should, write preview = "count"' in said
    for words, fault in (
        (["look"], "name two or more"),
        ([FEATURE_B, LABEL_HOLDER, "--count", "--records"], "--count and --records: give one"),
    ):
        assert fault in refused(_run(federation, "align", *words))
    assert json.loads(_run(federation, "prune", "look", "--json").out) == {"jobs": ["look"]}


def test_training(trained: Outcome) -> None:
    """The report is one JSON document; a finished job exits with 0 and says beside it that it ran."""
    status = json.loads(trained.out)
    assert trained.status == 0
    assert re.fullmatch(r"good: running\n(good: trained [12] of 2\n)*", trained.err)
    assert (status["job"], status["kind"], status["state"], status["error"]) == ("good", "train", "finished", "")
    assert (status["round"], status["rounds"]) == (2, 2)
    assert status["metrics"]["train_auc"] > 0.5
    assert {"prepare", "align", "keys", "bin", "train", "publish"} == set(status["phases"])


def test_predicting(federation: LocalFederation, trained: Outcome) -> None:
    """The label holder's file has the new records, or those of a list of ids, and the terminal says where it is."""
    outcome = _run(federation, "predict", "good", "--table", "train-new", "--json")
    assert (outcome.status, outcome.err) == (0, f"{json.loads(outcome.out)['job']}: running\n")
    path = Path(json.loads(outcome.out)["predictions"])
    assert path.parent == federation.state(LABEL_HOLDER) / "predictions"
    assert path.name.startswith("predict-good-")
    assert pq.read_table(path).column("id").to_pylist() == [f"r{40 + i:05d}" for i in range(12)]
    (federation.folder / "some.txt").write_text("r00051\nr00041\n")
    outcome = _run(
        federation, "predict", "good", "--table", "train-new", "--records", "some.txt", "--json", "--name", "two"
    )
    assert json.loads(outcome.out)["job"] == "two"
    assert Path(json.loads(outcome.out)["predictions"]).name == "two.parquet"
    assert pq.read_table(json.loads(outcome.out)["predictions"]).column("id").to_pylist() == ["r00041", "r00051"]


def test_an_evaluated_prediction(federation: LocalFederation, trained: Outcome) -> None:
    """Measures by the label holder's labels come back, rounded, and the document stays with it."""
    outcome = _run(federation, "predict", "good", "--table", "train", "--evaluate", "--json")
    status = json.loads(outcome.out)
    assert (outcome.status, outcome.err) == (0, f"{status['job']}: running\n")
    document = json.loads(Path(status["evaluation"]).read_text())
    assert (document["records"], sum(map(sum, document["confusion"]))) == (40, 40)
    assert {name: float(f"{value:.4g}") for name, value in document["measures"].items()} == status["metrics"]


@pytest.mark.second_tier
def test_predicting_without_showing_paths(federation: LocalFederation, trained: Outcome) -> None:
    """Encrypted under either scheme and --form per-tree find a plain prediction's scores; the status counts records."""
    scores = []
    for words in (
        ["--protocol", "eini", "--block", "5"],
        ["--form", "per-tree"],
        ["--protocol", "interactive"],
        ["--protocol", "eini-lattice", "--block", "5"],
    ):
        outcome = _run(federation, "predict", "good", "--table", "train-new", "--json", *words)
        status = json.loads(outcome.out)
        assert (outcome.status, outcome.err) == (0, f"{status['job']}: running\n")
        assert (status["scored"], status["records"]) == (12, 12)
        scores.append(pq.read_table(status["predictions"]).column("score").to_numpy())
        assert ("keys" in status["phases"]) == bool({"eini", "eini-lattice"} & set(words))
    np.testing.assert_allclose(scores[0], scores[2], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(scores[1], scores[2])
    np.testing.assert_allclose(scores[3], scores[2], rtol=0, atol=1e-4)


@pytest.mark.second_tier(but=3)
@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (["goof"], 2, "did you mean 'good'?"),
        (["nobodys"], 2, "there is no model 'nobodys': a model has the name of the training job that made it"),
        (["good", "--name", "good"], 2, "there is a job 'good' already"),
        (["good", "--table", "nowhere"], 2, "has no table 'nowhere'; its log lists those that it has"),
        (["good", "--protocol", "magic"], 2, "protocol = 'magic': must be one of interactive, eini, eini-lattice"),
        (["good", "--protocol", "eini", "--form", "batched"], 2, "is an option of interactive predictions only"),
        (["good", "--protocol", "eini", "--key-bits", "999"], 2, "key_bits = 999: must be 1024, 2048 or 3072"),
        (
            ["good", "--protocol", "eini-lattice", "--key-bits", "2048"],
            2,
            "a lattice key has the size that the model asks",
        ),
        (
            ["good", "--protocol", "eini-lattice", "--form", "batched"],
            2,
            "is an option of interactive predictions only",
        ),
        (
            ["good", "--protocol", "eini-lattice", "--away", "degrade"],
            2,
            "use protocol eini or interactive",
        ),
        (["good", "--protocol", "eini", "--key-bits", "512"], 1, "takes no part in a job with a key of 512 bits"),
        (["good", "--away", "panic"], 2, "away = 'panic': must be one of fail, retry, degrade"),
        (["good", "--away-deadline", "5"], 2, "away-deadline = 5: is an option of retry and degrade; leave it out"),
        (["good", "--away", "retry", "--away-deadline", "1"], 2, "away-deadline = 1: must be 3 to 3600 seconds"),
        (["good", "--table", "train-new", "--records", "../../etc/passwd"], 2, "is not below the data folder"),
        (["good", "--table", "train-new", "--records", "absent.txt"], 2, "absent.txt: there is no such file"),
        (["good", "--table", "train-new", "--records", "stranger.txt"], 2, "id number 2 is not in table 'train-new'"),
    ],
)
def test_predictions_that_cannot_be(
    words: list[str], status: int, expected: str, federation: LocalFederation, trained: Outcome
) -> None:
    """An unknown model or table and a bad list of ids are told at the operator's terminal."""
    (federation.folder / "stranger.txt").write_text("r00041\nr99999\n")
    outcome = _run(federation, "predict", *words)
    assert outcome.status == status
    assert "Traceback" not in outcome.err
    assert expected in outcome.err
    assert "r99999" not in outcome.err


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("bad-cell", "feature-b: bad-cell.csv: line 41, column 'b0': the cell is not a number"),
        ("bad-class", "label-holder: bad-class.parquet: label column 'y': holds one class only"),
        ("bad-constant", "feature-c: bad-constant.parquet: column 'c0' is constant"),
        ("bad-tensor", "feature-c: bad-tensor.parquet: column 'c0' holds tensors of shape 2 x 3, and trees split"),
        ("bad-ids", "the ids of feature-c (40 records) are not those of label-holder (40 records"),
        ("bad-column", "feature-b: bad-column.parquet: has no column 'öö"),
        ("bad-file", "feature-c: absent.parquet: there is no such file"),
        ("nowhere", " has no table 'nowhere'; its log lists those that it has"),
    ],
)
def test_faults_of_a_partys_table(table: str, expected: str, federation: LocalFederation) -> None:
    """Party, file, row and column of a fault come to the operator's terminal with status 2; values and ids do not."""
    outcome = _run(federation, "train", _job(federation, f"fault-{table}", table=table, alignment="sorted-ids"))
    assert outcome.status == 2
    assert "Traceback" not in outcome.err
    assert expected in outcome.err
    assert str(federation.folder) not in outcome.err
    assert outcome.err.count("treetap: ") == 1
    assert "n/a?" not in outcome.err
    for party in PARTIES:
        assert not (federation.state(party) / "jobs" / f"fault-{table}").exists()
    status = json.loads(_run(federation, "status", f"fault-{table}", "--json").out)["jobs"][0]
    assert (status["state"], status["bad_input"]) == ("failed", True)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"feature_parties": [FEATURE_B, "stranger"]}, "the coordinator knows no party 'stranger'"),
        ({"label_holder": "stranger"}, "the coordinator knows no party 'stranger'"),
        ({"feature_parties": [FEATURE_B, FEATURE_B]}, "'feature-b' is named twice"),
        ({"feature_parties": [FEATURE_B, LABEL_HOLDER]}, "'label-holder' is named twice"),
        ({"feature_parties": []}, "feature_parties"),
    ],
)
def test_jobs_of_the_wrong_parties(changes: dict[str, Any], expected: str, federation: LocalFederation) -> None:
    """Unknown and doubled parties are refused before a job exists."""
    assert expected in refused(_run(federation, "train", _job(federation, "wrong", **changes)))
    assert "there is no job 'wrong'" in refused(_run(federation, "status", "wrong"))
    assert "there is no job 'goof'; did you mean 'good'?" in refused(_run(federation, "status", "goof"))


def test_finished_is_finished(federation: LocalFederation, trained: Outcome) -> None:
    """A finished job can be neither resumed nor cancelled: its model stays, and asking is wrong usage."""
    assert "job good is finished: there is nothing to resume" in refused(_run(federation, "resume", "good"))
    assert "job good is finished: its model stays" in refused(_run(federation, "cancel", "good"))
    for command in ("resume", "cancel"):
        assert "there is no job 'nobodys'" in refused(_run(federation, command, "nobodys"))


@pytest.mark.second_tier
def test_a_job_in_the_background(federation: LocalFederation) -> None:
    """--detach prints the job's name and returns; status shows it running, cancel ends it."""
    outcome = _run(federation, "train", _job(federation, "background", n_estimators=5000), "--detach")
    assert (outcome.status, outcome.out, outcome.err) == (0, "background\n", "")
    status = json.loads(_run(federation, "status", "background", "--json").out)["jobs"][0]
    assert (status["state"], status["rounds"] in (0, 5000)) == ("running", True)
    table = _run(federation, "status")
    assert (table.status, table.err) == (0, "")
    assert "background" in table.out
    cancelled = _run(federation, "cancel", "background", "--json")
    assert json.loads(cancelled.out)["state"] == "cancelled"


@pytest.mark.second_tier
def test_pruning(federation: LocalFederation, trained: Outcome) -> None:
    """A cancelled job is forgotten by name or by age, and named; a model is not by age; wrong usage is refused."""
    for name in ("one", "another"):
        _run(federation, "train", _job(federation, name, n_estimators=200), "--detach")
        assert f"treetap cancel {name} ends it" in refused(_run(federation, "prune", name))
        assert _run(federation, "cancel", name).status == 0
    dry = _run(federation, "prune", "one", "--dry-run")
    assert (dry.status, dry.out, dry.err) == (0, "one\n", "")
    assert json.loads(_run(federation, "prune", "one", "--json").out) == {"jobs": ["one"]}
    assert "there is no job 'one'" in refused(_run(federation, "prune", "one"))
    old = _run(federation, "prune", "--older-than", "0")
    assert old.status == 0
    assert "another" in old.out.splitlines()
    assert "good" not in old.out.splitlines()
    assert _run(federation, "status", "good").status == 0
    assert _run(federation, "prune", "--older-than", "-1").status == 2


@pytest.mark.second_tier
def test_ctrl_c_stops_the_watching(federation: LocalFederation) -> None:
    """Interrupting `treetap train` leaves the job running."""
    watching = start("train", _job(federation, "watched", n_estimators=5000), folder=federation.folder)
    operator = federation.operator
    until(lambda: any(each.job == "watched" and each.round >= 1 for each in operator.status()), "the job begins")
    watching.send_signal(2)
    outcome = end(watching, 10)
    assert outcome.status != 0
    assert "Traceback" not in outcome.err
    assert operator.status("watched")[0].state == "running"
    operator.cancel("watched")


def test_reading_a_transcript(federation: LocalFederation, trained: Outcome) -> None:
    """As JSON and as a table: what feature-b received, sent and did itself, by class."""
    folder = federation.state(FEATURE_B) / "transcripts" / "good"
    outcome = treetap("transcript", folder, "--json")
    assert (outcome.status, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert set(found) == {"records", "first_unix_nanos", "last_unix_nanos", "torn", "signed", "rows", "own_rows"}
    assert found["records"] > 10
    assert found["torn"] is False
    assert {row["kind"] for row in found["rows"]} >= {"received", "sent"}
    gradients = [row for row in found["rows"] if (row["step"], row["class"]) == ("gradients", "CIPHERTEXT")]
    assert [(row["kind"], row["peer"]) for row in gradients] == [("received", LABEL_HOLDER)]
    table = treetap("transcript", folder)
    assert "INSTANCE_SPACE" in table.out
    assert "hash chain intact" in table.out


@pytest.mark.second_tier
def test_predicting_without_a_party(federation: LocalFederation, trained: Outcome) -> None:
    """--away degrade goes on without a killed party, says so in JSON and on the terminal, and flags the records."""
    federation.kill(FEATURE_C)
    words = ["predict", "good", "--table", "train-new", "--away", "degrade", "--away-deadline", "3"]
    try:
        outcome = _run(federation, *words, "--json")
        status = json.loads(outcome.out)
        assert (outcome.status, outcome.err) == (0, f"{status['job']}: running\n")
        assert (status["state"], status["away"]) == ("finished", [FEATURE_C])
        table = pq.read_table(status["predictions"])
        assert table.num_rows == 12
        assert 0 < max(table.column("guessed").to_pylist()) <= 1
        shown = _run(federation, "status", status["job"])
        assert f"{status['job']}: away: feature-c; predicted without (column guessed)" in shown.out
        failed = _run(federation, *words[:4])
        assert failed.status == 1
        assert FEATURE_C in failed.err
    finally:
        federation.restart(FEATURE_C)


@pytest.mark.second_tier
def test_a_party_that_is_not_there(federation: LocalFederation, trained: Outcome) -> None:
    """Within half a minute the terminal names party and cause, with status 1; when it is back the job is resumed."""
    federation.kill(FEATURE_C)
    started = time.monotonic()
    outcome = _run(federation, "train", _job(federation, "lonely"))
    assert time.monotonic() - started < 30
    assert outcome.status == 1
    assert "Traceback" not in outcome.err
    where = f"feature-c at {federation.addresses[FEATURE_C]}"
    assert f"treetap: {where}: connection refused: no process listens there" in outcome.err
    assert "(gRPC: failed to connect to all addresses" in outcome.err.replace("\n", " ")
    assert "treetap resume lonely" in outcome.err
    status = json.loads(_run(federation, "status", "lonely", "--json").out)["jobs"][0]
    assert (status["state"], status["bad_input"]) == ("interrupted", False)
    assert "interrupted" in _run(federation, "status", "lonely").out
    federation.restart(FEATURE_C)
    resumed = _run(federation, "resume", "lonely", "--json")
    assert (resumed.status, json.loads(resumed.out)["state"]) == (0, "finished")
    models = [federation.state(LABEL_HOLDER) / "models" / job / TREES for job in ("good", "lonely")]
    assert models[0].read_bytes() == models[1].read_bytes()


@pytest.mark.second_tier
def test_a_coordinator_that_is_not_there(federation: LocalFederation) -> None:
    """Every command that asks it exits with 1 and the cause; back again it knows its jobs."""
    federation.kill("coordinator")
    for words in (["status"], ["resume", "good"], ["train", str(_job(federation, "late"))]):
        message = refused(_run(federation, *words), 1)
        assert f"coordinator at {federation.addresses['coordinator']}: connection refused" in message
    federation.restart("coordinator")
    assert json.loads(_run(federation, "status", "good", "--json").out)["jobs"][0]["state"] == "finished"


def test_a_party_without_an_answer_is_not_taken_to_agree(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the coordinator leaves out: silence is none."""
    answers = [jobs_pb2.Checked(party="bank")]
    _print_checked(answers, ["bank"], as_json=False)
    assert capsys.readouterr().out == "bank: the job could begin here\n"
    with pytest.raises(TreetapError, match="because of telco"):
        _print_checked(answers, ["bank", "telco"], as_json=True)
    assert json.loads(capsys.readouterr().out)["could_begin"] is False


def test_a_screening_and_its_report(federation: LocalFederation) -> None:
    """Of a job's file; the report is at the label holder, in a table and as JSON, and in no other party's folder."""
    asked = _job(federation, "look-at", n_estimators=50, max_bin=8)
    outcome = _run(federation, "screen", asked, "--check")
    assert outcome.out.count("the job could begin here") == len(PARTIES)
    outcome = _run(federation, "screen", asked)
    assert outcome.status == 0
    assert f"the report lies in models/look-at of {LABEL_HOLDER}'s state folder" in outcome.err
    folder = federation.folder / LABEL_HOLDER / "state" / "models" / "look-at"
    report = json.loads(_run(federation, "screen", folder, "--json").out)
    assert [party["party"] for party in report["parties"]] == [FEATURE_B, FEATURE_C]
    shown = _run(federation, "screen", folder).out
    (good, bad), own = report["classes"], report["own"]
    assert f"{own['good']} records of class {good!r} count as good, {own['bad']} of {bad!r} as bad" in shown
    for party in report["parties"]:
        assert party["said"] in shown
        (column,) = party["columns"]
        assert f"{column['iv']:.3f}" in shown
        assert f"in {len(column['bins'])} bins of 1 columns" in shown
    elsewhere = federation.folder / FEATURE_B / "state" / "models" / "look-at"
    assert "has no report of a screening" in refused(_run(federation, "screen", elsewhere))
    assert "makes none" in refused(_run(federation, "predict", "look-at"))
