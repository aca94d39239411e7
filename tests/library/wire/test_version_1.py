"""What version 1 of the wire left behind (tests/fixtures/v1): transcripts, models and a journal stay readable.

The figures of version 1 about its own files lie beside them, and so do the predictions of its models.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from attacks.audit import audit
from attacks.audit_file import read
from attacks.view.replay import TranscriptReplay
from coordinator.runtime.job_record import CANCELLED, to_base64
from coordinator.runtime.journal import Journal
from tests.commands.command import treetap
from tests.simulator import COORDINATOR, Federation, run
from treetap.commands.jobs import progress_view
from treetap.commands.model.view import describe
from treetap.errors import Conflict, Incompatible
from treetap.protocols.prediction import predict_request
from treetap.protocols.registry import prediction_name, training_name
from treetap.wire.disclosure import bytes_by_class
from treetap.wire.signed_heads import Anchor
from treetap.wire.transcript import TranscriptReader, open_message
from treetap.wire.transcript_summary import summarise
from treetap.wire.v2 import jobs_pb2

V1 = Path(__file__).parents[2] / "fixtures" / "v1"
LABEL_HOLDER, B, C = "label-holder", "feature-b", "feature-c"
#: What is said of transcripts whose format has no signatures.
UNSIGNED = Anchor("version-1").plain()
COLUMNS = {LABEL_HOLDER: ["age", "income"], B: ["calls", "minutes"], C: ["basket", "visits", "plan"]}
EMITS = {B: {"FEATURE_NAME": [LABEL_HOLDER], "EXPLANATION": [LABEL_HOLDER]}, C: {"EXPLANATION": [LABEL_HOLDER]}}
#: Prediction of version 1 → how it was asked for.
ASKED: dict[str, dict[str, Any]] = {
    "boosting-interactive": {"model": "boosting"},
    "forest-interactive": {"model": "forest"},
    "boosting-per-tree": {"model": "boosting", "form": "per-tree", "away_policy": "degrade", "away_deadline_s": 10},
    "boosting-eini": {"model": "boosting", "protocol": "eini", "explain": True, "attributions": True, "block": 6},
    "forest-eini": {"model": "forest", "protocol": "eini"},
    "forest-interactive-explained": {
        "model": "forest",
        "explain": True,
        "explain_limit": 3,
        "records_file": "some.txt",
    },
    "boosting-lattice": {"model": "boosting", "protocol": "eini-lattice"},
}


def _expected(name: str) -> dict[str, Any]:
    """A file of figures."""
    content: dict[str, Any] = json.loads((V1 / "expected" / name).read_text(encoding="utf-8"))
    return content


def _folders(kind: str) -> list[str]:
    """Folders of transcripts or models among the fixtures, as the figures name them."""
    return sorted(str(path.relative_to(V1)) for path in V1.glob(f"*/state/{kind}/*"))


def _differences(found: Any, expected: Any, within: float, where: str = "") -> Iterable[str]:
    """Places at which two documents differ; numbers may by a share of `within`."""
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        if set(found) != set(expected):
            yield f"{where}: {sorted(set(found) ^ set(expected))}"
        for key in expected.keys() & found.keys():
            yield from _differences(found[key], expected[key], within, f"{where}/{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(found) == len(expected):
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(one, other, within, f"{where}/{number}")
    elif isinstance(expected, float) and isinstance(found, float):
        if not math.isclose(found, expected, rel_tol=within, abs_tol=within):
            yield f"{where}: {found!r}, but {expected!r} in version 1"
    elif found != expected or type(found) is not type(expected):
        yield f"{where}: {found!r}, but {expected!r} in version 1"


@pytest.mark.parametrize("folder", _folders("transcripts"))
def test_transcripts_have_the_figures_of_version_1(folder: str) -> None:
    """Messages and bytes by kind, peer, step and class are what version 1 counted, and every message opens."""
    assert summarise(V1 / folder) == {**_expected("transcripts.json")[folder], "signed": UNSIGNED}
    for record in TranscriptReader(V1 / folder):
        assert open_message(record).ByteSize() > 0 or not record.message


def test_every_transcript_has_its_figures() -> None:
    """No transcript was added or lost; the training of each protocol and each prediction is among them."""
    assert _folders("transcripts") == sorted(_expected("transcripts.json"))
    jobs = {Path(folder).name for folder in _folders("transcripts")}
    assert jobs >= {"boosting", "forest", "served", "unfinished", *(ASKED.keys() - {"forest-eini"})}


def test_the_command_prints_the_figures_of_version_1() -> None:
    """`treetap transcript` on a transcript of version 1."""
    folder = f"{LABEL_HOLDER}/state/transcripts/boosting"
    outcome = treetap("transcript", V1 / folder, "--json")
    assert (outcome.status, outcome.err) == (0, "")
    assert json.loads(outcome.out) == {**_expected("transcripts.json")[folder], "signed": UNSIGNED}


@pytest.mark.second_tier
@pytest.mark.parametrize("job", ["boosting", "forest"])
def test_audits_have_the_figures_of_version_1(job: str) -> None:
    """The whole document but for its time, the version, and seconds; paths are those below the fixtures.

    The scores of an attack were those after all trees; they are those of the most successful number of trees.
    """
    document = audit(read(V1 / f"audit-{job}.toml"), by_tree=True, progress=lambda _done, _total, _what: None)
    found = json.loads(json.dumps(document.plain()))
    for what in ("created", "treetap"):
        del found[what]
    for party in found["parties"].values():
        assert party.pop("signed") == UNSIGNED["says"]
        party["transcript"] = str(Path(party["transcript"]).relative_to(V1))
        for result in party["attacks"].values():
            del result["seconds"]
    expected = _expected(f"audit-{job}.json")
    assert found.pop("class_names") == ["0", "1"]
    found.pop("advice", None)
    for name, party in expected["parties"].items():
        for attack_name, before in party["attacks"].items():
            result = found["parties"][name]["attacks"][attack_name]
            after, accuracies = result.pop("after_trees"), result.pop("accuracy_by_tree")
            del result["named_accuracy"]  # a later figure, of the same groups
            assert accuracies[-1] == pytest.approx(before["accuracy"])
            assert result["v_measure"] == pytest.approx(max(before["by_tree"]))
            if after not in (None, expected["trees"]):
                assert result["accuracy"] == accuracies[after - 1]
                for figure in before.keys() - {"by_tree", "parameters"}:
                    before[figure] = result[figure]
    assert list(_differences(found, expected, 1e-6)) == []


@pytest.mark.parametrize("party", [B, C])
def test_records_of_both_versions_tell_one_story(party: str) -> None:
    """A transcript that another version went on with is read as one: the trees that its party saw are the same."""

    def replay(mixed: bool) -> TranscriptReplay:
        found = TranscriptReplay("boosting")
        for number, record in enumerate(TranscriptReader(V1 / party / "state" / "transcripts" / "boosting")):
            if mixed and number % 2:
                message = open_message(record)
                record.message_type, record.message = message.DESCRIPTOR.full_name, message.SerializeToString()
                assert record.message_type.startswith("treetap.wire.v2.")
                record.bytes_by_class.clear()
                record.bytes_by_class.update(bytes_by_class(message))
            found.take(record)
        return found

    mixed, before = replay(True), replay(False)
    assert mixed.trees_by_attempt == before.trees_by_attempt
    assert (mixed.peers, mixed.owners, mixed.own_digest) == (before.peers, before.owners, before.own_digest)
    traffic = [{(key.sent, key.peer, key.step) for key in replayed.messages} for replayed in (mixed, before)]
    assert traffic[0] == traffic[1]  # some fields have another class today
    assert str(mixed.alignments) == str(before.alignments) != "{}"
    assert len(before.trees_by_attempt) == 3
    assert before.peers >= {LABEL_HOLDER}


#: Unfinished job of version 1 → what to do with it.
UNFINISHED = {"unfinished": "train", "unfinished-serve": "serve"}


def _outdated(job: str, kind: str) -> str:
    """Why a job of version 1 does not go on."""
    return (
        f"job {job} was begun in version 1 of the wire, and version 2 cannot go on with it: treetap cancel {job}, "
        f"then treetap {kind} under another name"
    )


def _status_of_version_1(status: jobs_pb2.JobStatus) -> dict[str, Any]:
    """A status as `treetap status --json` shows it, with the names that rounds and stages had in version 1."""
    found = progress_view.status_dict(status)
    for name, before in (("round", "tree"), ("rounds", "trees"), ("stage", "depth")):
        found[before] = found.pop(name)
    assert (found.pop("stored_trees"), found.pop("used_trees")) == (0, 0)  # which it did not count
    assert found.pop("history") == []  # which it did not keep
    assert found.pop("evaluation") == ""  # which it did not make
    del found["protocol"]  # which it did not name
    assert found.pop("arithmetic") == {}
    assert found.get("serving", {}).pop("away", []) == []  # it served with all parties only
    return found


def _journal(folder: Path) -> Journal:
    """A journal that holds what version 1 left."""
    return Journal(Path(shutil.copytree(V1 / "coordinator" / "state" / "journal", folder / "journal")))


def test_the_journal_has_the_states_of_version_1(tmp_path: Path) -> None:
    """Every job is listed as version 1 listed it: finished, failed, cancelled and interrupted ones of all kinds.

    Of those that version 1 would have gone on with, the error says that this version does not, and what to do.
    """
    journal = _journal(tmp_path)
    expected = _expected("status.json")
    assert set(journal.jobs()) == set(expected)
    for job, status in expected.items():
        if job in UNFINISHED:
            assert status["error"].startswith("the coordinator stopped; ")
            status["error"] = f"the coordinator stopped; {_outdated(job, UNFINISHED[job])}"
        assert list(_differences(_status_of_version_1(journal.status(job)), status, 0.0, job)) == []
    states = {(status["kind"], status["state"]) for status in expected.values()}
    trainings = {("train", "finished"), ("train", "cancelled"), ("train", "interrupted")}
    assert states == trainings | {("predict", "finished"), ("predict", "failed")} | {
        ("serve", "cancelled"),
        ("serve", "interrupted"),
    }


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ("feature-b does not answer; then: treetap resume unfinished", "feature-b does not answer"),
        ("too few rows; mend it, then: treetap resume unfinished", "too few rows"),
        ("the coordinator stopped", "the coordinator stopped"),
    ],
)
def test_no_job_of_version_1_says_that_it_can_be_resumed(told: str, cause: str, tmp_path: Path) -> None:
    """The cause of an interruption stays; the advice is that of this version."""
    journal = _journal(tmp_path)
    status = jobs_pb2.JobStatus(job="unfinished", kind="train", state="interrupted", attempt=1, error=told)
    journal.write("unfinished", "ended", attempt=1, status=to_base64(status))
    assert journal.status("unfinished").error == f"{cause}; {_outdated('unfinished', 'train')}"


def test_what_was_submitted_in_version_1_is_read(tmp_path: Path) -> None:
    """Kind, nonce, protocol and members of jobs of all kinds; a line of a later version is reported."""
    journal = _journal(tmp_path)
    training, serving = journal.submitted("boosting"), journal.submitted("unfinished-serve")
    assert (training.kind, training.wire, training.submission) == ("train", 1, "6391838938207529295")
    assert (serving.kind, serving.wire, serving.submission) == ("serve", 1, "11452751864153464565")
    assert training.members == serving.members == list(COLUMNS)
    assert (training_name(training.spec), prediction_name(serving.opening)) == ("boosting", "eini")
    assert prediction_name(journal.submitted("boosting-lattice").opening) == "eini-lattice"
    assert journal.submitted("boosting-per-tree").opening.parameters.interactive.form == "per-tree"
    file = tmp_path / "journal" / "later.jsonl"
    file.write_text('{"event":"submitted","kind":"train","spec":"","submission":"5","wire":3}\n')
    with pytest.raises(Incompatible, match="job later was begun in version 3 of the wire, this is 2: install"):
        _ = journal.submitted("later").spec


def test_new_jobs_say_their_version(tmp_path: Path) -> None:
    """The first line of a job tells the version of its message, and is read back with it."""
    journal = Journal(tmp_path / "journal")
    spec = _journal(tmp_path / "before").submitted("forest").spec
    journal.write_submitted("new", "train", spec, "77")
    line = json.loads((tmp_path / "journal" / "new.jsonl").read_text())
    assert line.pop("unix_nanos") <= time.time_ns()
    assert {name: line[name] for name in line if name not in ("spec", "sha256")} == {
        "event": "submitted",
        "kind": "train",
        "submission": "77",
        "wire": 2,
    }
    found = journal.submitted("new")
    assert (found.kind, found.wire, found.submission, found.spec, found.outdated) == ("train", 2, "77", spec, "")
    assert "treetap resume new" in journal.status("new").error


@pytest.mark.parametrize("folder", _folders("models"))
def test_models_are_shown_as_version_1_showed_them(folder: str) -> None:
    """`treetap model show` of every party's part."""
    assert json.loads(json.dumps(describe(V1 / folder))) == _expected("models.json")[folder]


def test_every_model_has_its_view() -> None:
    """No model was added or lost."""
    assert _folders("models") == sorted(_expected("models.json"))
    assert len(_folders("models")) == 2 * len(COLUMNS)


def _federation(folder: Path) -> Federation:
    """Three parties and a coordinator of today on copies of what those of version 1 left."""
    tables: dict[str, tuple[list[str], dict[str, pa.Table]]] = {
        party: (columns, {"predict": pacsv.read_csv(V1 / "tables" / f"{party}-predict.csv")})
        for party, columns in COLUMNS.items()
    }
    policies = {party: {"emits": emits} for party, emits in EMITS.items()}
    federation = Federation(folder, tables, policies=policies, encode="one-hot")
    for name in (*COLUMNS, COORDINATOR):
        federation.kill(name)
    for party in COLUMNS:
        shutil.copytree(V1 / party / "state", federation.state(party), dirs_exist_ok=True)
    shutil.copytree(V1 / "coordinator" / "state" / "journal", folder / COORDINATOR / "journal", dirs_exist_ok=True)
    shutil.copy(V1 / "tables" / "some.txt", folder / LABEL_HOLDER)
    for name in (*COLUMNS, COORDINATOR):
        federation.start(name)
    return federation


@pytest.mark.second_tier
@pytest.mark.filterwarnings("ignore:a 512-bit")
def test_models_of_version_1_predict_as_they_did(tmp_path: Path) -> None:
    """On the disks of version 1 each way to predict gives the scores, paths and attributions that it gave then."""

    async def main() -> dict[str, jobs_pb2.JobStatus]:
        federation = _federation(tmp_path / "federation")
        listed = {status.job: status.state for status in federation.jobs.status("")}
        assert listed == {job: status["state"] for job, status in _expected("status.json").items()}
        found = {
            name: await federation.predict(predict_request(job=f"new-{name}", table="predict", **asked))
            for name, asked in ASKED.items()
        }
        await federation.close()
        return found

    for name, status in run(main()).items():
        assert (name, status.state, status.error) == (name, "finished", "")
        before = V1 / LABEL_HOLDER / "state" / "predictions"
        # a lattice's sums are exact to a share of 1e-4 of the range that scores can have
        within = 1e-3 if name == "boosting-lattice" else 1e-9
        _assert_same(status.predictions, before / f"{name}.parquet", within)
        asked = ASKED[name]
        assert bool(status.explanations) == asked.get("explain", False)
        if status.explanations:
            _assert_same(status.explanations, before / f"{name}.explained.parquet", within)
            assert list(status.withheld) == [C]
        assert bool(status.attributions) == asked.get("attributions", False)
        if status.attributions:
            _assert_same(status.attributions, before / f"{name}.attributions.parquet", within)


def test_a_job_of_a_later_release_is_left_alone(tmp_path: Path) -> None:
    """After a return to this release: it is neither resumed nor cancelled, and the message names the remedy."""

    async def main() -> None:
        federation = _federation(tmp_path)
        file = tmp_path / COORDINATOR / "journal" / "later.jsonl"
        file.write_text('{"event":"submitted","kind":"train","spec":"","submission":"5","wire":3}\n')
        before = file.read_bytes()
        advice = "job later was begun in version 3 of the wire, this is 2: install the release that began it"
        with pytest.raises(Incompatible, match=advice):
            federation.jobs.resume("later")
        with pytest.raises(Incompatible, match=advice):
            await federation.jobs.cancel("later")
        (status,) = federation.jobs.status("later")
        assert (status.state, file.read_bytes()) == ("interrupted", before)
        assert advice in status.error
        await federation.close()

    run(main())


def test_unfinished_jobs_of_version_1_are_refused_and_cancelled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`resume` names the job, its version and what to do; none is served by itself; a cancelled one leaves no files."""

    async def main() -> None:
        federation = _federation(tmp_path / "federation")
        federation.jobs.serve_on()
        served = [record for record in caplog.records if "unfinished-serve" in record.getMessage()]
        assert [record.levelname for record in served] == ["WARNING"]
        assert _outdated("unfinished-serve", "serve") in served[0].getMessage()
        assert "running" not in {status.state for status in federation.jobs.status("")}
        for job, kind in {**UNFINISHED, "failed": "predict"}.items():
            with pytest.raises(Incompatible, match=_outdated(job, kind)):
                federation.jobs.resume(job)
        assert all((federation.state(party) / "jobs" / "unfinished").is_dir() for party in COLUMNS)
        for job in UNFINISHED:
            ended = await federation.jobs.cancel(job)
            assert (ended.state, ended.error) == ("cancelled", CANCELLED)
        assert not any((federation.state(party) / "jobs" / "unfinished").exists() for party in COLUMNS)
        with pytest.raises(Conflict, match="boosting is finished"):
            federation.jobs.resume("boosting")
        await federation.close()

    run(main())


def _assert_same(path: str, before: Path, within: float) -> None:
    """Two Parquet files have the same columns and cells, numbers but for rounding."""
    found, expected = pq.read_table(path), pq.read_table(before)
    assert found.schema == expected.schema
    assert found.num_rows == expected.num_rows > 0
    assert list(_differences(_rows(found), _rows(expected), within, before.name)) == []


def _rows(table: pa.Table) -> Sequence[dict[str, Any]]:
    """The rows; paths, which are JSON, opened."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        if isinstance(row.get("paths"), str):
            row["paths"] = json.loads(row["paths"])
    return rows
