"""`privacy` of a job: what each word decides, what contradicts it, what people approve, and both words side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from sklearn.base import clone

import treetap
from tests.attacks.sums_documents import both_directions, figures
from tests.commands.experiment_documents import experiment, run
from treetap.attacks.report.verdict import PLACED, remains
from treetap.attacks.verdict import Verdict
from treetap.commands.jobs.job_file import JobFile, JobTable, JobTableOfFederation
from treetap.errors import ConfigError, Interrupted
from treetap.lab.api.loopback import Loopback
from treetap.lab.api.parameters import job_table
from treetap.lab.experiment import side_by_side
from treetap.lab.experiment.command import print_report
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.page import html
from treetap.lab.experiment.results import PrivacyRow, RunResult
from treetap.lab.experiment.side_by_side import add_other, by_other_word
from treetap.lab.local_federation import DEALER
from treetap.protocols.agreement import job_digest
from treetap.protocols.job_spec import PRIVACY, PRIVATE, PUBLISHED, WITHHELD
from treetap.strict import faults_of
from treetap.wire.v2 import setup_pb2

PARTIES = {"label_holder": "bank", "feature_parties": ["telco"]}


def _job(**given: Any) -> JobTableOfFederation:
    job: JobTableOfFederation = JobTableOfFederation.model_validate({**PARTIES, **given})
    return job


@pytest.mark.parametrize(
    ("given", "word", "scheme", "spaces", "sums"),
    [
        ({}, PUBLISHED, "paillier", "sent", "opened"),
        ({"privacy": PUBLISHED, "scheme": "lattice"}, PUBLISHED, "lattice", "sent", "opened"),
        ({"privacy": WITHHELD}, WITHHELD, "lattice", "withheld", "opened"),
        ({"privacy": PRIVATE, "dealer": "third"}, PRIVATE, "lattice", "withheld", "shared"),
        ({"privacy": WITHHELD, "protocol": "forest"}, WITHHELD, "lattice", "withheld", "opened"),
        ({"privacy": WITHHELD, "scheme": "auto"}, WITHHELD, "lattice", "withheld", "opened"),
        ({"privacy": WITHHELD, "instance_spaces": "withheld"}, WITHHELD, "lattice", "withheld", "opened"),
        ({"scheme": "lattice", "instance_spaces": "withheld"}, WITHHELD, "lattice", "withheld", "opened"),
        (
            {"scheme": "lattice", "instance_spaces": "withheld", "sums": "shared", "dealer": "third"},
            *(PRIVATE, "lattice", "withheld", "shared"),
        ),
    ],
)
def test_a_word_decides_three_keys(given: dict[str, Any], word: str, scheme: str, spaces: str, sums: str) -> None:
    """Of what is sent; named or not, the word is that to which the keys come, and a dump is read as it was."""
    job = _job(**given)
    spec = JobFile(job=job).to_spec()
    assert (job.privacy, spec.scheme, spec.sums) == (word, scheme, sums)
    assert job.params().to_dict()["instance_spaces"] == spaces
    assert _job(**job.model_dump(exclude_unset=True)) == job


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"privacy": PRIVATE, "scheme": "paillier"}, 'scheme, instance_spaces and sums: remove scheme = "paillier"'),
        ({"privacy": WITHHELD, "sums": "shared"}, 'remove sums = "shared"'),
        ({"privacy": PRIVATE, "sums": "opened"}, 'privacy = "private" decides'),
        ({"privacy": WITHHELD, "instance_spaces": "sent"}, 'remove instance_spaces = "sent"'),
        (
            {"privacy": PUBLISHED, "instance_spaces": "withheld", "sums": "shared"},
            'decides instance_spaces and sums: remove instance_spaces = "withheld" and sums = "shared"',
        ),
        ({"privacy": PRIVATE, "key_bits": 2048}, "key_bits: scheme 'lattice' has none; leave it out"),
        ({"privacy": "hidden"}, "privacy: Input should be 'published', 'withheld' or 'private'"),
        ({"privacy": ["private"]}, "privacy: Input should be"),
        (
            {"privacy": PRIVATE, "protocol": "pivodl"},
            "privacy = 'private' and protocol 'pivodl' do not go together",
        ),
    ],
)
def test_a_line_against_the_word_is_named(given: dict[str, Any], fault: str) -> None:
    """With the key that it decides, and the line to remove."""
    with pytest.raises(ValidationError) as raised:
        _job(**given)
    assert fault in "; ".join(faults_of(raised.value, JobTableOfFederation))


def test_no_dealer_is_no_lower_word() -> None:
    """It is refused with the line of the job, and that of the policies."""
    with pytest.raises(ConfigError) as raised:
        JobFile(job=_job(privacy=PRIVATE)).to_spec()
    for line in ('dealer = "NAME" under [job]', 'dealers = ["NAME"] under [people] of every party\'s policy'):
        assert line in str(raised.value)


def test_another_word_or_dealer_is_another_job() -> None:
    """An approval is of a digest, and each of these has its own."""
    jobs = [{"privacy": word, **({"dealer": "third"} if word == PRIVATE else {})} for word in PRIVACY]
    jobs.append({"privacy": PRIVATE, "dealer": "fourth"})
    specs = [JobFile(job=_job(**job)).to_spec() for job in jobs]
    assert len({job_digest("job", setup_pb2.Prepare(spec=spec, submission="7")) for spec in specs}) == len(jobs)


@pytest.mark.parametrize("word", PRIVACY)
def test_estimators_have_the_word(word: str) -> None:
    """It decides the scheme too, unless the caller names another one."""
    model = clone(treetap.FederatedClassifier(privacy=word, max_depth=2))
    job = job_table(model, "binary:logistic", "psi", ["no", "yes"], numeric=False)
    assert (job.privacy, job.scheme) == (word, "paillier" if word == PUBLISHED else "lattice")
    if word != PUBLISHED:
        with pytest.raises(ValueError, match="key_bits: scheme 'lattice' has none"):
            job_table(clone(model).set_params(key_bits=1024), "binary:logistic", "psi", [], numeric=False)


def test_a_private_fit_needs_a_federation_with_a_dealer() -> None:
    """The caller's own federation may lack one; it is told before anything starts."""
    running = Loopback(["party-1", "party-2"])
    model = treetap.FederatedClassifier(2, privacy=PRIVATE, federation=running)
    with pytest.raises(ValueError, match=r"needs a dealer: treetap.federation\(…, dealer=True\)"):
        model.fit([[0.0, 1.0], [1.0, 0.0]] * 10, [0, 1] * 10)


# ---- side by side


def _with(**job: Any) -> ExperimentFile:
    given = experiment()
    return given.model_copy(update={"job": JobTable.model_validate({"alignment": "sorted-ids", **job})})


@pytest.mark.parametrize(
    ("job", "other"),
    [
        ({"key_bits": 1024, "max_depth": 2}, PRIVATE),
        ({"privacy": WITHHELD}, PRIVATE),
        ({"privacy": PRIVATE}, PUBLISHED),
        ({"scheme": "auto"}, PRIVATE),
    ],
)
def test_the_other_word_is_of_the_same_job(job: dict[str, Any], other: str) -> None:
    """All but what the word decides; a stand-in deals, and nobody trains alone again."""
    given = _with(**job)
    made = by_other_word(given)
    assert (made.job.privacy, made.data.compare, made.job.max_depth) == (other, False, given.job.max_depth)
    assert made.spec(made.job).dealer == (DEALER if other == PRIVATE else "")


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"reg_alpha": 1.0}, "set it to 0, or set privacy = 'withheld'"),
        ({"grow_policy": "lossguide"}, "grow depthwise to max_depth alone"),
        ({"protocol": "forest", "binning": "per-node"}, "set binning = 'global'"),
        (
            {"protocol": "pivodl", "epsilon": 8.0, "clip": 0.5},
            "train trees that one label holder grows, or leave it out",
        ),
    ],
)
def test_a_job_that_cannot_be_private_says_why(job: dict[str, Any], why: str, tmp_path: Path) -> None:
    """In its row, with what to write; nothing is started for it."""
    result = run()
    add_other(result, _with(**job), None, tmp_path)
    first, second = result.by_privacy
    assert (first.privacy, first.refused, first.test) == (PUBLISHED, "", result.metrics["test"])
    assert second.privacy == PRIVATE
    assert why in second.refused
    assert list(tmp_path.iterdir()) == []


def test_a_run_has_the_rows_of_both_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is a run of the other word below its own folder; a party that refuses is heard."""
    asked: list[Any] = []

    def second(other: ExperimentFile, _: Any, seed: int, folder: Path, title: str, **__: Any) -> RunResult:
        asked.append((other.job.privacy, seed, folder, title))
        return run(seed, metrics={"test": {"auc": 0.75}}, seconds={"train": 2.0, "publish": 0.5})

    monkeypatch.setattr(side_by_side, "run_seed", second)
    result = run(3, metrics={"test": {"auc": 0.75}})
    add_other(result, _with(privacy=PRIVATE), None, tmp_path)
    assert asked == [(PUBLISHED, 3, tmp_path / PUBLISHED / "seed-3", "seed 3, published")]
    assert [(row.privacy, row.test, row.seconds) for row in result.by_privacy] == [
        (PUBLISHED, {"auc": 0.75}, 2.5),
        (PRIVATE, {"auc": 0.75}, 6.0),
    ]
    monkeypatch.setattr(side_by_side, "run_seed", lambda *_, **__: (_ for _ in ()).throw(Interrupted("lab\nrefuses")))
    add_other(result, _with(), None, tmp_path)
    assert result.by_privacy[1].refused == "lab; refuses"


def _row(word: str, auc: float, after: float, **more: Any) -> PrivacyRow:
    figures = {"measure": "accuracy", "before": 0.5, "after": after, "share": after - 0.5, "details": "x"}
    verdicts = [
        Verdict.model_validate({"party": "lab", "learned": what, "of": "clinic", "word": "notable", **figures})
        for what in ("labels", "columns")
    ]
    return PrivacyRow(privacy=word, test={"auc": auc, "logloss": 0.1}, seconds=2.0, verdicts=verdicts, **more)


def test_both_words_stand_in_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    """Means of the measure and the time, the worst verdict of all runs; a refusal under the table, on the page too."""
    rows = [[_row(PUBLISHED, 0.9, 0.75), _row(PRIVATE, 0.9, 0.5 + seed / 100)] for seed in (1, 2)]
    runs = [run(seed, by_privacy=of) for seed, of in enumerate(rows)]
    print_report(runs, details=False)
    printed = " ".join(capsys.readouterr().out.split())
    for word, after in ((PUBLISHED, 75), (PRIVATE, 52)):
        assert f"{word} 0.9000 ± 0.0000 notable: 50 → {after} % notable: 50 → {after} %" in printed
        assert f"{word} 2.0 ± 0.0 s" in printed
    refused = run(by_privacy=[_row(PUBLISHED, 0.9, 0.75), PrivacyRow(privacy=PRIVATE, refused="why; write this")])
    print_report([refused], details=False)
    assert "private refuses this job: why; write this." in capsys.readouterr().out
    assert "private refuses this job: why; write this." in html(experiment(), "loans", [refused])
    print_report([run()], details=False)
    assert "By privacy" not in capsys.readouterr().out


def test_what_remains_heads_the_audit_of_a_private_job() -> None:
    """Of no other; its figures are those of the page that has the measurement."""
    document = both_directions(figures("lab-north"), trees=2)
    assert remains(document) == []
    said = remains(document.model_copy(update={"private": True}))
    assert said[0].startswith("A private job: clinic learned each winner's owner and left set")
    page = (Path(__file__).parents[2] / "benchmarks" / "measured" / "leaks.md").read_text(encoding="utf-8")
    for trees, ranges in PLACED.items():
        assert f"| {trees} | {ranges[0]}–{ranges[1]} | {ranges[2]}–{ranges[3]} |" in page
