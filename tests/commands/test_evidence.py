"""`treetap evidence`: each fact is in the file that it names, nothing secret is in the folder, and it is whole."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.approvals.people import MANUAL
from tests.campaign.small_jobs import LABEL_HOLDER, TRAININGS, B, trained
from tests.commands.command import files_in, refused, treetap, treetap_here, write
from tests.forgetting.test_forget import holding
from tests.published import write_manifest
from tests.replay import HERE
from tests.simulator import in_place
from tests.system.namespaces import tls_of
from treetap.attacks.published.schema import PublishedDocument
from treetap.attacks.verdict import Verdict
from treetap.errors import DataError, Pending
from treetap.models.durable import write_document
from treetap.models.store import JOB, JOB_SEED, MODEL_FORMAT
from treetap.ops.evidence.facts import Fact, Kept, written
from treetap.ops.evidence.folder import PURPOSE, SIGNATURE, SIGNER, SUMS, bill_of_materials, write_evidence
from treetap.ops.evidence.papers import QUESTIONS, epsilons
from treetap.party.approvals.decisions import Asked
from treetap.party.approvals.ledger import Approvals
from treetap.party.policy import Policy
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap.party.serving.decisions import DecisionLog
from treetap.wire.signatures import fits
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2 import boosting_pb2
from treetap.wire.v2.transcript_pb2 import TranscriptRecord

MODELS = Path(__file__).parent.parent / "library" / "models" / f"v{MODEL_FORMAT}"
#: What stands in the state where ids, labels, cells, columns, file names, keys and people's words do.
CANARY = "canary"
DRAWN = "d1" * 32
DRAW = {
    **{"path": f"/{CANARY}.csv", "column": f"{CANARY}-column", "key": f"{CANARY}-key", "labels": DRAWN, "priors": ""},
    **{"records": 48, "classes": 2, "epsilon": 0.5, "stages": 2, "mechanism": "RRWithPrior/1"},
}
NOISE = {"epsilon": 4.0, "delta": 1e-6, "trees": 20, "rho": 0.26, "z": 12.5}
PIVODL = {"n_estimators": 2, "max_depth": 2, "epsilon": 3.0, "delta": 1e-5, "clip": 1.0, "learning_rate": 0.3}
DP_SGD = {"clip": 1.0, "noise": 2.0, "epsilon": 1.25, "delta": 1e-5}
VERDICT = Verdict(
    party="telco", learned="labels", of="bank", word="notable", measure="AUC", before=0.5, after=0.625, details=CANARY
)
TESTED = {"model": "experiment", "records": 96, "members": 48, "shadow_models": 16, "seconds": 7.5, "knew": [CANARY]}


def _remake(folder: Path, **more: Any) -> None:
    """Write the model's manifest with other entries; `labels` belongs to its job."""
    job = {key: value for key, value in json.loads((folder / JOB).read_text()).items() if key != "sha256"}
    write_document(folder / JOB, job | {"labels": more.pop("labels", job.get("labels"))}, JOB_SEED)
    write_manifest(folder, json.loads((folder / "manifest.json").read_text()) | more)


def bank(folder: Path, certs: Path) -> Path:
    """A bank's configuration file, whose state has something of every kind about model `experiment`."""
    state, model = folder / "state", folder / "state" / "models" / "experiment"
    shutil.copytree(MODELS / "bank", model)
    digest = json.loads((model / "manifest.json").read_text())["job_digest"]
    _remake(
        model,
        labels=DRAWN,
        classes=[f"{CANARY}-good", f"{CANARY}-bad"],
        class_type="string",
        column_privacy={"telco": NOISE},
    )
    (model / "names.json").write_text(CANARY)
    occasion = Occasion("loans", ("telco",), "coordinator", "experiment", 1)
    for kind, amount, details in (
        *((Kind.TRAINING, 1, {}), (Kind.RECORDS, 48, {}), (Kind.NOISY_LABELS, 0.5, DRAW)),
        (Kind.CLEAN_LABELS, 40, {"measures": [CANARY]}),
    ):
        ledger_of(state).enter(Charge(kind, occasion, amount, details))
    ledger_of(state).enter(Charge(Kind.TRAINING, Occasion("loans", ("other",), "coordinator", "later", 1)))
    with TranscriptWriter(state / "transcripts" / "experiment") as log:
        message = boosting_pb2.Gradients(first=0, count=1, ciphertexts=CANARY.encode())
        for kind in (TranscriptRecord.SENT, TranscriptRecord.SENT, TranscriptRecord.RECEIVED):
            log.append(kind, "telco", "gradients", "experiment", 1, 0, 0, message)
    approvals = Approvals("bank", state / "approvals", files_in(certs, "bank"))
    asked = Asked("experiment", "train", digest, "coordinator", "operator", document={"submission": "7"})
    with pytest.raises(Pending):
        approvals.admit(Policy(**MANUAL), asked, lambda: ("You send telco gradients.",))
    approvals.decide("ann", "experiment", digest, days=None, why=CANARY)
    approvals.decide("ann", "experiment", digest, days=3)
    decided = DecisionLog("bank", state, 36_525, in_place)
    line = {"client": "app", "status": "predicted", "ids": [decided.hashed(CANARY)], "model": "experiment"}
    asyncio.run(decided.write([line | {"prediction": CANARY, "reasons": [f"telco:{CANARY}"]}]))
    write(
        folder / "policy.toml", '[people]\nrecord = "both"\n[labels]\nlabel_budget = 8.0\nmin_evaluated_records = 31\n'
    )
    content = {"name": "bank", "state": "state", "policy": "policy.toml", "tls": tls_of(files_in(certs, "bank"))}
    served = {"clients": ["app"], "listen": "127.0.0.1:0", "decision_days": 9, "refused": CANARY}
    return write(folder / "bank.toml", content | {"serve": served})


def experiment(folder: Path) -> Path:
    """The folder of an experiment, with an intruder test of its run."""
    (folder / "seed-0").mkdir(parents=True)
    made = {"experiment": {"job.n_estimators": 9, "job.max_depth": 3, "data.label": CANARY}}
    (folder / "made-with.json").write_text(json.dumps(made))
    (folder / "results.json").write_text(json.dumps({"runs": [{"verdicts": [VERDICT.plain()]}]}))
    (folder / "seed-0" / "intruder.json").write_text(json.dumps({**TESTED, "verdicts": [VERDICT.plain()]}))
    return folder


@pytest.fixture
def config(tmp_path: Path, certs: Path) -> Path:
    """The bank's configuration file."""
    return bank(tmp_path, certs)


def facts_in(folder: Path) -> list[Fact]:
    """All facts of a folder of evidence."""
    content = json.loads((folder / "evidence.json").read_text())
    return [Fact(*fact) for paper in content["papers"] for heading in paper["headings"] for fact in heading["facts"]]


def _in(content: Any, key: str) -> Any:
    """What stands at a key with dots, of which a name may have some itself."""
    if isinstance(content, dict) and key in content:
        return content[key]
    part, _, rest = key.partition(".")
    inner = content[int(part)] if isinstance(content, list) else content[part]
    return _in(inner, rest) if rest else inner


def _figures(value: Any) -> Iterator[Any]:
    """All words and numbers in a value."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _figures(inner)
    else:
        yield value


#: Numbers by themselves, not parts of a time or a name.
_NUMBER = re.compile(r"(?<![\w.:-])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w:-])")


def _backs(entry: Any, fact: Fact) -> bool:
    """Whether an entry of a file is a fact's value; of one with several figures, has all numbers of the fact."""
    if isinstance(entry, list):
        return fact.value in (written(entry), str(len(entry)))
    if not isinstance(entry, dict):
        return fact.value.partition(", of this model")[0] == (written(entry) or "none")
    figures = list(_figures(entry))
    known = {form.format(one) for one in figures if type(one) in (int, float) for form in ("{}", "{:g}", "{:.4g}")}
    words = [one for one in figures if isinstance(one, str)]
    value = fact.value.replace("δ = 0", "")  # of a mechanism that has none
    return {*_NUMBER.findall(value)} <= known and (not words or any(one in fact.value for one in words))


def test_every_fact_is_in_the_file_that_it_names(config: Path, tmp_path: Path) -> None:
    """At its key; places without keys are there."""
    runs, state = experiment(tmp_path / "runs"), tmp_path / "state"
    write_evidence(config, "experiment", tmp_path / "out", runs)
    kinds = set()
    for fact in facts_in(tmp_path / "out"):
        place, _, key = fact.source.partition("#")
        if place.startswith("treetap "):
            continue
        kinds.add(place.partition("/")[0])
        (file,) = (folder / place for folder in (state, runs, tmp_path) if (folder / place).exists())
        if place == "ledger.jsonl" and key:
            assert _backs(json.loads(file.read_text().splitlines()[int(key)]), fact), fact
        elif key and file.suffix in (".json", ".toml"):
            content = file.read_text()
            assert _backs(_in((json if file.suffix == ".json" else tomllib).loads(content), key), fact), fact
    assert kinds == {
        *("models", "ledger.jsonl", "transcripts", "approvals", "decisions", "bank.toml", "policy.toml"),
        *("results.json", "seed-0", "made-with.json"),
    }


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("place", "heading"),
    [
        ("transcripts", "Sent in the training"),
        ("transcripts", "Received in the training"),
        ("approvals", "Approvals"),
        ("decisions", "Answers of the served model"),
        ("ledger.jsonl", "Charges of the training in the ledger"),
        ("models/experiment/leakage.jsonl", "What sets of records told of the labels"),
    ],
)
def test_what_the_state_lacks_is_not_said(place: str, heading: str, config: Path, tmp_path: Path) -> None:
    """A heading is left without a fact, and no other fact is of that place."""
    write_evidence(config, "experiment", tmp_path / "before", None)
    path, model = tmp_path / "state" / place, tmp_path / "state" / "models" / "experiment"
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if place.startswith("models"):
        digests = json.loads((model / "manifest.json").read_text())["files"]
        _remake(model, files={name: digest for name, digest in digests.items() if name != path.name})
    ledger_of.cache_clear()
    done = write_evidence(config, "experiment", tmp_path / "after", None)
    assert f"data-protection-annex: {heading}" in done["not_recorded"]
    before, after = ({fact.source for fact in facts_in(tmp_path / name)} for name in ("before", "after"))
    assert any(source.startswith(place) for source in before)
    assert not any(source.startswith(f"{place}#") or source.startswith(f"{place}/") for source in after)


def test_nothing_secret_is_in_the_folder(config: Path, tmp_path: Path, certs: Path) -> None:
    """No canary, no threshold, leaf weight, name of a column, or key; the page of a paper says what its JSON says."""
    write_evidence(config, "experiment", tmp_path / "out", experiment(tmp_path / "runs"))
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    trees = [json.loads(line) for line in (MODELS / "bank" / "trees.jsonl").read_text().splitlines()]
    numbers = {str(one) for one in _figures(trees) if type(one) is float and len(str(one)) > 6}
    assert len(numbers) > 20
    key = files_in(certs, "bank").key.read_text().splitlines()[1]
    for name, content in files.items():
        text = content.decode(errors="replace")
        assert CANARY not in text, name
        assert not any(number in text for number in numbers), name
        assert key not in text
        assert not re.search(r"\b(income|age)\b", text), name
    for fact in facts_in(tmp_path / "out"):
        if fact.source.startswith("approvals"):
            assert fact.value in files["data-protection-annex.html"].decode()


def test_messages_limits_and_approvals(config: Path, tmp_path: Path) -> None:
    """What was sent to whom by class and bytes; a charge of another job is none of this model."""
    done = write_evidence(config, "experiment", tmp_path / "out", None)
    facts = {fact.what: fact.value for fact in facts_in(tmp_path / "out")}
    assert re.fullmatch(r"2 messages, \d+ bytes of this class", facts["to telco: CIPHERTEXT"])
    assert re.fullmatch(r"1 messages, \d+ bytes of this class", facts["from telco: CIPHERTEXT"])
    assert facts["labels.min_evaluated_records"] == "31"
    assert facts["spent: label_budget, labels"] == "0.5 ε, of 8"
    assert facts["train experiment: approved"].startswith("by ann (command), from ")
    assert facts["train experiment: in words"] == "You send telco gradients."
    assert facts["app: predicted"] == "1"
    assert not [what for what in facts if "later" in what]
    assert "data-protection-annex: Motivated intruder test, of an experiment" in done["not_recorded"]
    assert "Not done." in (tmp_path / "out" / "data-protection-annex.html").read_text()


def test_an_experiment_is_told_apart_from_the_model(config: Path, tmp_path: Path) -> None:
    """Its verdicts and intruder test, by figures, and the parameters in which it is another training."""
    write_evidence(config, "experiment", tmp_path / "out", experiment(tmp_path / "runs"))
    facts = [
        fact
        for fact in facts_in(tmp_path / "out")
        if fact.source.split("#")[0].endswith(("s.json", "r.json", "h.json"))
    ]
    assert (
        Fact("telco, labels of bank", "notable, AUC, before 0.5, after 0.625", "results.json#runs.0.verdicts.0")
        in facts
    )
    assert Fact("shadow models", "16", "seed-0/intruder.json#shadow_models") in facts
    differing = ("it differs from this training in n_estimators", "9, of this model 3")
    assert [fact[:2] for fact in facts if "differs" in fact.what] == [differing, differing]
    assert {*TESTED} <= {*PublishedDocument.model_fields}
    (tmp_path / "runs" / "seed-0" / "intruder.json").unlink()
    done = write_evidence(config, "experiment", tmp_path / "without", tmp_path / "runs")
    assert "data-protection-annex: Motivated intruder test, of an experiment" in done["not_recorded"]
    assert "data-protection-annex: Attacks in an experiment, another training" not in done["not_recorded"]


def test_the_card_has_the_headings_of_annex_iv(config: Path, tmp_path: Path) -> None:
    """Nine, in order; what no state backs is empty."""
    done = write_evidence(config, "experiment", tmp_path / "out", None)
    card = json.loads((tmp_path / "out" / "evidence.json").read_text())["papers"][1]
    assert [heading["title"].split(".")[0] for heading in card["headings"]] == [str(number) for number in range(1, 10)]
    assert {line[12:13] for line in done["not_recorded"] if line.startswith("model-card: ")} == {*"456789"}


@pytest.mark.parametrize(
    ("party", "manifest", "titles"),
    [
        ("bank", {"labels": DRAWN}, ["Noisy labels"]),
        ("bank", {"column_privacy": {"telco": NOISE}}, ["Noise on sums of telco"]),
        ("telco", {"column_privacy": NOISE}, ["Noise on sums of telco"]),
        ("bank", {"role": "party", "params": PIVODL}, ["Noise on leaf weights"]),
        ("telco", {"dp_sgd": DP_SGD, "epochs": 3}, ["Noise on gradients of telco"]),
        ("bank", {"params": {"epsilon": None}}, []),
        ("telco", {}, []),
    ],
)
def test_every_epsilon_answers_six_questions(party: str, manifest: Any, titles: list[str], tmp_path: Path) -> None:
    """In the order of SP 800-226, with its ε; a model without a mechanism has no such page."""
    folder = shutil.copytree(MODELS / party, tmp_path / "state" / "models" / "experiment")
    kept = Kept.of(write(tmp_path / "p.toml", {"name": party, "state": "state", "insecure": True}), "experiment", None)
    occasion = Occasion("loans", ("telco",), "coordinator", "experiment", 1)
    job = {"labels": manifest.get("labels")}
    whole = {**kept.manifest, **{key: value for key, value in manifest.items() if key != "labels"}}
    described = {**kept.described, "role": whole["role"]}
    drawn = [Charge(Kind.NOISY_LABELS, occasion, 0.5, DRAW), Charge(Kind.NOISED_WEIGHTS, occasion, 3.0, {})]
    values = {**vars(kept), "manifest": whole, "described": described, "job": job, "charges": drawn, "folder": folder}
    paper = epsilons(Kept(**values))
    headings = [] if paper is None else paper.headings
    assert [heading.title.partition(" (")[0] for heading in headings] == titles
    for heading in headings:
        assert [fact.what for fact in heading.facts][: len(QUESTIONS)] == list(QUESTIONS)
        assert re.match(r"ε = (0\.5|4|3|1\.25), δ = (0|1e-0[56])$", heading.facts[1].value)
        assert all(fact.value and fact.source for fact in heading.facts)


def test_digests_and_signature(config: Path, tmp_path: Path) -> None:
    """Every file is in SHA256SUMS, every file of the model in model.sha256; what is signed begins with its purpose."""
    assert write_evidence(config, "experiment", tmp_path / "out", None)["signed"]
    out, model = tmp_path / "out", tmp_path / "state" / "models" / "experiment"
    sums = (out / SUMS).read_text()
    assert sums.splitlines()[0] == PURPOSE
    listed = dict(line.split("  ")[::-1] for line in sums.splitlines()[2:])
    assert {*listed} == {path.name for path in out.iterdir()} - {SUMS, SIGNATURE, SIGNER}
    of_model = dict(line.split("  ")[::-1] for line in (out / "model.sha256").read_text().splitlines())
    assert {*of_model} == {path.name for path in model.iterdir()}
    for digests, folder in ((listed, out), (of_model, model)):
        assert digests == {name: sha256((folder / name).read_bytes()).hexdigest() for name in digests}
    certificate, signature = x509.load_pem_x509_certificate((out / SIGNER).read_bytes()), (out / SIGNATURE).read_bytes()
    assert fits(certificate, signature, sums.encode())
    assert not fits(certificate, signature, sums.replace("  ", " ").encode())


def test_packages() -> None:
    """Each installed distribution once, by its normalised name, in order."""
    bill = bill_of_materials(datetime(2026, 1, 1, tzinfo=UTC))
    purls = [part["purl"] for part in bill["components"][1:]]
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert all(one < other for one, other in pairwise(purls))
    numpy = f"pkg:pypi/numpy@{metadata.version('numpy')}"
    assert {numpy, f"pkg:pypi/protobuf@{metadata.version('protobuf')}"} <= {*purls}
    assert len(purls) == len(
        {
            (one.metadata["Name"].lower().replace("_", "-").replace(".", "-"), one.version)
            for one in metadata.distributions()
        }
    )


def _wrong(runs: Path) -> None:
    (experiment(runs) / "results.json").write_text('{"runs": [{"verdicts": [{}]}]}')


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("make", "words", "says"),
    [
        (lambda _: None, ("other",), "there is no published model"),
        (
            lambda runs: runs.mkdir(),
            ("experiment", "--experiment", "runs"),
            "has neither results.json nor intruder.json",
        ),
        (_wrong, ("experiment", "--experiment", "runs"), "is not what this release writes"),
        (lambda runs: runs.mkdir(), ("experiment", "--out", "runs"), "is there already"),
    ],
)
def test_what_is_refused(
    make: Callable[[Path], None], words: tuple[str, ...], says: str, config: Path, tmp_path: Path
) -> None:
    """One message with the cure, status 2, and nothing is written."""
    make(tmp_path / "runs")
    assert says in refused(treetap("evidence", *words, "--config", config, folder=tmp_path))
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(("evidence", ".evidence"))]


def test_the_command(config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what was written, and what is the provider's to write; a second time it refuses."""
    monkeypatch.chdir(config.parent)
    assert treetap_here("evidence", "experiment", "--config", str(config), "--json") == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["folder"], done["signed"]) == ("evidence/experiment", True)
    assert {*done["files"]} == {path.name for path in Path("evidence/experiment").iterdir()}
    assert "epsilon.html" in done["files"]
    assert treetap_here("evidence", "experiment", "--config", str(config)) == 2
    assert "is not written over" in capsys.readouterr().err
    assert treetap_here("evidence", "experiment", "--config", str(config), "--out", "again") == 0
    assert "- not recorded: model-card: 5. Risk management system" in capsys.readouterr().out


@pytest.mark.second_tier
@pytest.mark.parametrize("party", [LABEL_HOLDER, B])
@pytest.mark.parametrize("story", [it for it in ("boosting", "noise on sums", "pivodl", "splitnn") if it in TRAININGS])
def test_no_id_of_a_training_is_in_it(story: str, party: str, tmp_path: Path) -> None:
    """As text or as a hash that the party can compute; a real training's state backs facts at both sides."""
    state = shutil.copytree(next(trained(story).glob(f"{party}/state")), tmp_path / "state")
    (model,) = (path.name for path in (state / "models").iterdir())
    config = write(tmp_path / "party.toml", {"name": party, "state": "state", "insecure": True})
    write_evidence(config, model, state / "evidence", None)
    ids = HERE.tables[party][1]["train"].column("id").to_pylist()
    assert not [place for place in holding(state, ids) if place.startswith("evidence/")]
    sources = {fact.source.partition("#")[0].partition("/")[0] for fact in facts_in(state / "evidence")}
    assert {"models", "ledger.jsonl", "party.toml"} <= sources
    assert (state / "evidence" / "epsilon.html").exists() == (story == "noise on sums")


def test_a_model_of_another_format(config: Path, tmp_path: Path) -> None:
    """It is refused by its format, before anything is written."""
    manifest = tmp_path / "state" / "models" / "experiment" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"version": {MODEL_FORMAT}', '"version": 1'))
    with pytest.raises(DataError, match="is a model of format 1"):
        write_evidence(config, "experiment", tmp_path / "out", None)
    assert not (tmp_path / "out").exists()
