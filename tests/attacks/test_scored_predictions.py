"""Scores of predictions under attack from files: the leaves of Fed-EINI's records, and the weights of masked sums."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.documents import in_terminal
from tests.attacks.pivodl import PARAMS as SHARED
from tests.attacks.pivodl import shared_world
from tests.attacks.present import present
from tests.attacks.recorded import KEY_BITS, transcript
from tests.pivodl.federations import job_of, transparent
from tests.pivodl.jobs import policies
from tests.simulator import Federation
from tests.simulator import run as finished
from tests.worlds import PARTIES, World, spec, world
from treetap.attacks.audit import audit
from treetap.attacks.audit_file import AuditFile
from treetap.attacks.document import parse
from treetap.attacks.files import AuditedParty, ScoredPrediction
from treetap.attacks.limits import exceeded
from treetap.attacks.predictions import evidence as scored
from treetap.attacks.predictions.decoding import decode_paths, invert
from treetap.attacks.predictions.evidence import ScoreEvidence, path_decoding, prediction_inversion, read_scores
from treetap.attacks.published.schema import DecodingSettings
from treetap.attacks.registry import row
from treetap.attacks.report.page import html
from treetap.attacks.run import Task, run
from treetap.errors import BadInput
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_model
from treetap.party.masked.passing import FRACTION
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams

HOLDER = PARTIES[0]
BOOSTED = BoostingParams(n_estimators=4, max_depth=3, max_bin=8)
NEW = 30


def files_of(folder: Path, states: dict[str, Path], party: str, job: str, scores: str) -> ScoredPrediction:
    """A recipient's files of a prediction."""
    return ScoredPrediction(
        job=job,
        transcript=states[party] / "transcripts",
        model=states[party] / "models" / "job",
        table=folder / party / "predict.parquet",
        scores=Path(scores),
    )


@pytest.fixture(scope="module")
def boosted(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, dict[str, Path], dict[str, ScoredPrediction]]:
    """A boosted model, and its label holder's files of predictions by Fed-EINI and in the open."""
    folder, here = tmp_path_factory.mktemp("boosted"), world(100, (2, 2, 2), fresh=NEW)
    predictions: dict[str, str] = {}

    async def main() -> dict[str, Path]:
        federation = Federation(folder, here.tables, record="received")
        job = spec(BOOSTED, len(here.blocks), key_bits=KEY_BITS, obfuscation="standard")
        assert (await federation.train(job)).state == "finished"
        for protocol in ("eini", "interactive"):
            status = await federation.predict(predict_request(protocol, model="job", job=f"by-{protocol}", block=11))
            assert (status.state, status.error) == ("finished", "")
            predictions[f"by-{protocol}"] = status.predictions
        await federation.close()
        return federation.states

    states = finished(main())
    return here, states, {job: files_of(folder, states, HOLDER, job, path) for job, path in predictions.items()}


def leaves_of(here: World, states: dict[str, Path], evidence: ScoreEvidence) -> list[list[int]]:
    """The leaves that each new record reaches in each tree, by the splits of all parties."""
    blocks, shards = dict(here.newcomers), {name: read_model(it / "models" / "job")[1] for name, it in states.items()}
    splits: dict[tuple[int, int], np.ndarray[Any, Any]] = {}
    for name, lines in shards.items():
        for t, line in enumerate(lines):
            for split in map(OwnSplit.from_dict, line["own"] if "own" in line else line["splits"]):
                splits[t, split.node] = split.goes_left(blocks[name][:, split.feature])
    reached = []
    for record in range(NEW):
        of_record = []
        for t in range(len(evidence.trees)):
            node = 1
            while (t, node) in splits:
                node = 2 * node + (not splits[t, node][record])
            of_record.append(node)
        reached.append(of_record)
    return reached


@pytest.mark.second_tier(but=1)
@pytest.mark.filterwarnings("ignore:a 512-bit")
def test_paths_of_a_prediction_by_encrypted_sums_lie_open(boosted: Any) -> None:
    """Four trees are few: from the label holder's own disk every path follows, and it is the true one."""
    here, states, files = boosted
    evidence = read_scores(files["by-eini"], DecodingSettings())
    assert (evidence.recipient, evidence.protocol, len(evidence.sums), len(evidence.trees)) == (HOLDER, "eini", NEW, 4)
    figures = present(path_decoding(evidence))
    assert (figures.records, figures.contradicted, figures.undecided) == (NEW, 0, 0)
    assert figures.unique + figures.several == NEW
    assert figures.unique > NEW / 2
    assert 0 < figures.candidate_bits < 12
    for record, truth in enumerate(leaves_of(here, states, evidence)):
        decoded = present(decode_paths(evidence.trees, evidence.sums, record))
        assert all(leaf in (-1, true) for leaf, true in zip(decoded.leaves.tolist(), truth, strict=True))
    fewer = present(path_decoding(read_scores(files["by-eini"], DecodingSettings(records=7))))
    assert (fewer.records, fewer.left_out) == (7, NEW - 7)


@pytest.mark.filterwarnings("ignore:a 512-bit")
def test_an_audit_attacks_the_predictions_that_it_names(boosted: Any, tmp_path: Path) -> None:
    """The document has them, in its JSON too; --fail-above judges them, and the command finds the same."""
    _, states, files = boosted
    party = PARTIES[1]
    audited = AuditedParty(name=party, transcript=transcript(states, party))
    file = AuditFile(classes=2, attacks=["uni"], party=[audited], prediction=[files["by-eini"]])
    document = audit(file, by_tree=False, progress=lambda *_: None)
    figures = present(document.predictions)["by-eini"]
    assert figures.reasons == {"prediction-inversion": "is on predictions by masked; this one is by eini"}
    assert parse(json.loads(json.dumps(document.plain()))) == document
    page = html(document).replace("&#160;", " ")
    for text in (page, in_terminal(document)):
        assert "by-eini" in text
        assert f"{100 * present(figures.path_decoding).unique / NEW:.1f} %" in text
    assert '<section id="scores"' in page
    (line,) = exceeded(document, {"path-decoding": 0.3})
    assert line.startswith("prediction by-eini: whole paths are known: a share of ")
    with pytest.raises(BadInput, match="was run on no prediction"):
        exceeded(document, {"prediction-inversion": 0.3})
    plain = audit(file.model_copy(update={"prediction": []}), by_tree=False, progress=lambda *_: None).plain()
    assert "predictions" not in plain
    assert '<section id="scores"' not in html(plain)
    given = files["by-eini"]
    party = AuditedParty.model_construct(name=None, transcript=given.transcript, table=given.table, model=given.model)
    named = AuditFile.model_construct(job=given.job)
    task = Task("path-decoding", party, named, predictions=given.scores)
    report = run(task).report
    assert (report["party"], report["model"], report["unique"]) == (
        HOLDER,
        "job",
        present(figures.path_decoding).unique,
    )
    with pytest.raises(BadInput, match="say --job PREDICTION, --model FOLDER"):
        run(replace(task, predictions=None))
    with pytest.raises(BadInput, match="prediction-inversion: is on predictions by masked"):
        run(replace(task, name="prediction-inversion"))


@pytest.mark.filterwarnings("ignore:a 512-bit")
def test_files_that_do_not_fit_are_refused(boosted: Any, tmp_path: Path) -> None:
    """Another protocol, the transcript of a training, another party's model and table, and other scores."""
    _, states, files = boosted
    given, settings = files["by-eini"], DecodingSettings()

    def refused(match: str, files: ScoredPrediction = given, **changes: Any) -> None:
        with pytest.raises(BadInput, match=match):
            read_scores(files.model_copy(update=changes), settings)

    refused("is by interactive, which opens no masked sums", files["by-interactive"])
    refused("is of no prediction", job="job")
    refused("is not the model that", model=states[PARTIES[1]] / "models" / "job")
    refused("has 0 columns of scores, and the model 1 outputs", scores=given.table)
    refused("no transcript of job 'march'", job="march")


def test_settings_have_one_schema() -> None:
    """That of the rows, with ranges."""
    assert row("path-decoding").settings is row("prediction-inversion").settings is DecodingSettings
    with pytest.raises(BadInput, match=r"work must be a whole number in \[2, "):
        DecodingSettings.read({"work": 1})
    with pytest.raises(ValueError, match="settings of attacks on predictions: unknown: trees"):
        AuditFile.model_validate({"party": [], "decoding": {"trees": 3}})


@pytest.mark.second_tier
@pytest.mark.filterwarnings("ignore:a 512-bit")
def test_recipients_of_masked_sums_invert_them_from_their_files(tmp_path: Path) -> None:
    """Of a federation with noise: exact weights that no message held, and paths that were undecided before."""
    assert scored.MASKED_PLACES == FRACTION
    here = shared_world(300, fresh=120)
    params = replace(SHARED, epsilon=8.0)
    predictions: dict[str, str] = {}

    async def main() -> dict[str, Path]:
        federation = Federation(tmp_path, here.tables, record="received", policies=policies(job_of(here, params)))
        assert (await federation.train(job_of(here, params))).state == "finished"
        for name in here.tables:
            asked = predict_request(model="job", job=f"ask-{name}", recipient=name, block=50)
            status = await federation.predict(asked)
            assert (status.state, status.error) == ("finished", "")
            predictions[name] = status.predictions
        await federation.close()
        return federation.states

    with transparent():
        states = finished(main())
    shards = [read_model(state / "models" / "job")[1] for state in states.values()]
    paths = []
    for name, path in predictions.items():
        evidence = read_scores(files_of(tmp_path, states, name, f"ask-{name}", path), DecodingSettings(records=60))
        figures = present(prediction_inversion(evidence))
        assert (figures.records, figures.before.records, figures.after.left_out) == (120, 60, 60)
        assert (figures.after.contradicted, path_decoding(evidence)) == (0, None)
        assert evidence.reasons == {"path-decoding": "is on predictions by eini or lattice; this one is by masked"}
        assert figures.solved <= figures.unknown < figures.leaves
        paths.append((figures.before.unique, figures.after.unique))
        found = invert(evidence.trees, evidence.sums)
        assert sum(int((~tree.known).sum()) for tree in found) == figures.unknown - figures.solved
        for t, tree in enumerate(found):
            true = {each["node"]: each["weight"] for shard in shards for each in shard[t]["weights"]}
            for leaf, weight in zip(tree.leaves[tree.known].tolist(), tree.weights[tree.known].tolist(), strict=True):
                assert weight == np.rint(np.array(true[leaf]) * 2.0**FRACTION).astype(np.int64).tolist()
        for record in range(120):
            decoded = decode_paths(found, evidence.sums, record)
            assert decoded is None or decoded.solutions > 0
            if decoded is not None and decoded.outcome == "unique":
                places = [tree.leaves.tolist().index(leaf) for tree, leaf in zip(found, decoded.leaves, strict=True)]
                weights = [tree.weights[place] for tree, place in zip(found, places, strict=True)]
                assert sum(weights).tolist() == evidence.sums[record].tolist()  # type: ignore[union-attr] # an array
    before, after = np.sum(paths, axis=0)
    assert before < after
