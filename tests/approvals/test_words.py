"""The words in which a job asks for approval, and drafts of policies that would let it in.

- Plain words of a job: computed from the limits in force, of every protocol; foreign texts control no screen.
- Drafts of jobs: an operator signs what it asked for, and nothing that the coordinator has put beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.campaign.small_jobs import TRAININGS
from tests.commands.test_five_lines import KEY, NUMBER
from tests.replay import JOB, PARAMS
from tests.simulator import NOWHERE
from tests.worlds import PARTIES, spec
from treetap.coordinator.jobs import Jobs
from treetap.coordinator.prediction import opening_of, preview_of
from treetap.errors import ConfigError, Refused
from treetap.names import NAME
from treetap.party.approvals.decisions import Asked
from treetap.party.approvals.openings import kind_of
from treetap.party.approvals.words import FIRST, ITEM, LONGEST, MEASURED, SETTING, Job, shown, words_of
from treetap.party.config import PartyConfig
from treetap.party.defences.settings import ColumnPrivacyTable, Defences, LabelDp
from treetap.party.opening import KINDS
from treetap.party.policy import Policy
from treetap.protocols.agreement import checked, job_document, named, to_draft
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.tables.config import CONSTRAINTS, TableConfig
from treetap.wire.disclosure import CLASSES
from treetap.wire.frame import Opening
from treetap.wire.v2 import alignment_pb2, jobs_pb2, setup_pb2

LABEL_HOLDER, B, C = PARTIES
DEFENCES = Defences(column_privacy=ColumnPrivacyTable(epsilon=4.0, delta=1e-6, trees=9))
TRAIN = named(jobs_pb2.SubmitRequest(job="job", spec=JOB))
PREDICT = named(predict_request("eini", model="job", key_bits=2048, table="predict"))
ALIGN = named(jobs_pb2.AlignRequest(answer="count", table="train", parties=PARTIES))


def _words(
    opening: Opening, step: str, me: str = B, operator: str = "", earlier: Asked | None = None, **config: Any
) -> str:
    policy = Policy(people={"label_holders": [LABEL_HOLDER, B], "peers": [C, B]}, **config.pop("policy", {}))
    own = PartyConfig(name=me, state=Path("state"), tls=NOWHERE, **config).under(policy)
    members = KINDS[step].members(opening, "coordinator")
    asked = Asked("job", kind_of(opening), "ab" * 32, "coordinator", operator, document=job_document("job", opening))
    return "\n".join(words_of(Job(asked, members, KINDS[step].rows(opening), "", earlier), own))


def _training(job: setup_pb2.JobSpec = JOB, me: str = B, **config: Any) -> str:
    return _words(setup_pb2.Prepare(spec=job, submission="7"), "prepare", me, **config)


def test_three_sentences_come_first() -> None:
    """What goes out, what an audit of such a job measured, and what is new since the last one approved."""
    tables = {"train": TableConfig(path=Path("t.csv"), id="id", columns=["a", "b", "c"])}
    assert [line.removeprefix(FIRST) for line in _training(tables=tables).splitlines()[:3]] == [
        f'{LABEL_HOLDER} will receive what the training needs of your 3 columns in table "train".',
        "In an audit of such a job without a defence the label holder read 53 % of the cells, to the range that each "
        "is in (breast cancer, twenty trees); yours may tell more or less.",
        f"You have approved no job of this kind for {LABEL_HOLDER} before.",
    ]
    at_holder = _training(me=LABEL_HOLDER, defences=Defences(refit=True, label_dp=LabelDp(epsilon=1.0))).splitlines()
    assert at_holder[0] == f'• {B} and {C} will receive what the training needs of your labels in table "train".'
    assert at_holder[3:5] == [MEASURED["boosting", "labels"][1], "Your file names defences, which that job had not."]


@pytest.mark.parametrize(
    ("job", "says"),
    [
        (JOB, "It is as job old, which you approved last of this kind for label-holder, in all that it asks for."),
        (
            spec(replace(PARAMS, n_estimators=7)),
            "last of this kind for label-holder, in the settings below.\n    n_estimators = 2  # was 7\n",
        ),
    ],
)
def test_a_job_is_compared_with_the_one_that_was_approved_last(job: setup_pb2.JobSpec, says: str) -> None:
    """By all fields but those that name a submission."""
    document = job_document("old", setup_pb2.Prepare(spec=job, submission="6"))
    assert says in _training(earlier=Asked("old", "train", "cd" * 32, "coordinator", document=document))


def test_measured_figures_are_those_of_the_pages() -> None:
    """Every figure that people are told stands where its experiment is described."""
    folder = Path(__file__).parents[2] / "benchmarks" / "measured"
    page = "".join((folder / name).read_text(encoding="utf-8") for name in ("columns.md", "audits.md"))
    for sentences in MEASURED.values():
        for figure in re.findall(r"\d+(?= %)", " ".join(sentences)):
            assert re.search(rf"\b{figure}(?:\.[0-4])? %|\b{int(figure) - 1}\.[5-9] %|–{figure} %", page), figure


def test_a_training_says_who_wants_what_of_which_table() -> None:
    """Names, sizes, and the party's own place in it."""
    words = _training(operator="operator")
    assert "\nOperator operator has signed job job; coordinator coordinator conducts it.\n" in words
    wants = f'wants to train trees (boosting) on table "train" with {B}, {C}.\n– in 2 rounds\n– to depth 2\n'
    assert f"{LABEL_HOLDER} {wants}" in words
    assert "You want to train trees" in _training(me=LABEL_HOLDER)
    assert f"{LABEL_HOLDER} will learn about your columns at most that" in words
    assert f"{B} and {C} will learn about your labels at most that" in _training(me=LABEL_HOLDER)
    assert f"You send {C} nothing that can be read" in words


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "  – over groups of any size, also of one"),
        ({"defences": Defences(min_cell_records=20)}, "  – over groups of at least 20 records"),
        (
            {"defences": DEFENCES},
            "  – with noise, for a record's bin in one column: ε of 4\n  – δ of it 1e-06, given the sets of records",
        ),
        (
            {"defences": DEFENCES},
            "The ε of your noise is of one attempt: each further one adds as much.",
        ),
        ({"policy": {"columns": {"min_instance_space": 9}}}, "  – sets of at least 9"),
        ({"policy": {"columns": {"min_common_records": 77}}}, "At least 77 records must be common."),
        (
            {
                "policy": {"columns": {"column_budget": 2.5}},
                "defences": Defences(column_privacy=ColumnPrivacyTable(epsilon=2.0, delta=1e-6, trees=9)),
            },
            "Your budget for columns is an ε of 2.5 in all.",
        ),
        ({"policy": {"labels": {"min_evaluated_records": 41}}}, "  – of at least 41 records"),
        (
            {"tables": {"train": TableConfig(path=Path("t.csv"), id="id", normalise=["digits", "casefold"])}},
            "and every table must say so:\n    normalise = ['casefold', 'digits']",
        ),
        (
            {"tables": {"train": TableConfig(path=Path("t.csv"), id=[["id"], ["phone", "born"]])}},
            "Your table has 2 keys: both learn by which a record matches; any of them can be guessed.",
        ),
    ],
)
def test_limits_in_force_are_named(config: dict[str, Any], says: str) -> None:
    """And only those: without the setting, its words are not there."""
    assert says in _training(**config)
    if config:
        assert says not in _training(policy={"columns": {"min_common_records": 5, "min_instance_space": 2}})


def test_a_table_for_evaluation_is_named() -> None:
    """Its records are in sets of any size."""
    job = setup_pb2.JobSpec()
    job.CopyFrom(JOB)
    job.eval_table = "more"
    words = _training(job, policy={"columns": {"min_instance_space": 9}})
    assert ', and to evaluate it on table "more".' in words
    assert "  – sets of at least 9\n  – of the table for evaluation of any size" in words
    assert "evaluat" not in _training(policy={"columns": {"min_instance_space": 9}, "emits": {"METRIC": []}})


def test_only_who_has_labels_reads_of_them() -> None:
    """A feature party's sets say nothing of its own labels, which it lacks."""
    policy = {"labels": {"max_leakage": 0.5}}
    assert "0.5 nats of your labels" in _training(me=LABEL_HOLDER, policy=policy)
    assert "nats of your labels" not in _training(policy=policy)
    assert "your labels" not in _training()


def test_withheld_groups_cannot_be_checked() -> None:
    """The sets that a lattice hides from the party that sums."""
    withheld = spec(replace(PARAMS, instance_spaces="withheld"), scheme=LATTICE)
    assert "groups that you cannot check" in _training(withheld)
    assert "groups that you cannot check" not in _training()


def test_a_class_that_the_policy_keeps_is_not_said_to_go() -> None:
    """The words are about this party, not about the protocol."""
    tells = CLASSES["METRIC"].tells
    assert tells in _training()
    assert tells not in _training(policy={"emits": {"METRIC": []}})


@pytest.mark.parametrize("story", TRAININGS)
def test_every_training_has_words(story: str) -> None:
    """At the label holder and at another party: three come first; each has one number, and keys are in settings."""
    for me in (LABEL_HOLDER, B):
        own = {"defences": DEFENCES} if me == B and story == "noise on sums" else {}
        words = _training(TRAININGS[story][1], me, policy={"labels": {"label_budget": 3.0}}, **own).splitlines()
        assert [line.startswith(FIRST) for line in words] == [True] * 3 + [False] * (len(words) - 3)
        told = [line for line in words if not line.startswith(SETTING)]
        assert [line for line in told if len(NUMBER.findall(line)) > 1 or KEY.search(line)] == []
        assert all(line.endswith((".", ":")) or line.lstrip().startswith(ITEM) for line in told)


def test_a_direction_is_told_where_there_is_one() -> None:
    """Of a table in which no column has one none goes."""
    table = TableConfig(path=Path("t.csv"), id="id", columns=["a"])
    bound = table.model_copy(update={CONSTRAINTS: {"a": 1}})
    (name,) = table.unsent
    assert [CLASSES[name].tells in _training(tables={"train": it}) for it in (table, bound)] == [False, True]


@pytest.mark.parametrize(("answer", "which"), [("count", "how many"), ("records", "which")])
def test_previews_say_whether_ids_are_told(answer: str, which: str) -> None:
    """A count tells no party which of its own ids are common."""
    opening = alignment_pb2.OpenPreview(answer=answer, table="train", parties=PARTIES, submission="7")
    words = _words(opening, "open_preview", policy={"columns": {"preview": "records"}})
    assert f'wants to know {which} records of table "train" are common' in words
    assert ("No party learns which of its own records are common." in words) == (answer == "count")


def test_foreign_texts_are_cut_and_control_nothing() -> None:
    """The name of a table is a coordinator's word."""
    assert shown("\x1b[2J\u202e") == '"\\\\x1b[2J\\\\u202e"'
    assert len(shown("x" * 10_000)) < LONGEST + 10
    job = setup_pb2.JobSpec()
    job.CopyFrom(JOB)
    job.table = "\x1b[2J\n" + "y" * 100_000
    words = _training(job)
    assert "\x1b" not in words
    assert max(map(len, words.splitlines())) < 2_000


def _draft(request: Any) -> jobs_pb2.Drafted:
    """The draft of an honest coordinator."""
    if isinstance(request, jobs_pb2.SubmitRequest):
        prepare = setup_pb2.Prepare(spec=request.spec, submission=request.submission)
        prepare.spec.base_submission = "9" if request.spec.base_model else ""
        return jobs_pb2.Drafted(prepare=prepare)
    if isinstance(request, jobs_pb2.PredictRequest):
        return jobs_pb2.Drafted(open_model=opening_of(request, JOB, "5", request.submission))
    return jobs_pb2.Drafted(open_preview=preview_of(request))


@pytest.mark.parametrize("request_", [TRAIN, PREDICT, ALIGN], ids=["train", "predict", "align"])
def test_an_honest_draft_is_signed(request_: Any) -> None:
    """It is named, and its submission has a nonce of its own."""
    assert NAME.match(request_.job)
    assert request_.submission != named(request_).submission
    assert checked(request_, _draft(request_)).ByteSize() > 0
    assert to_draft(request_).WhichOneof("request") in ("train", "predict", "align")


def test_names_are_made_of_what_is_asked() -> None:
    """As long as a name may be."""
    assert PREDICT.job.startswith("predict-job-")
    serve = named(predict_request("interactive", model="m" * 60, serve=True))
    assert NAME.match(serve.job)
    assert serve.job.startswith("serve-mmm")
    assert ALIGN.job.startswith("align-")


@pytest.mark.parametrize(
    ("request_", "field", "change"),
    [
        (TRAIN, "spec", lambda draft: setattr(draft.prepare.spec, "table", "other")),
        (TRAIN, "spec", lambda draft: setattr(draft.prepare.spec, "eval_table", "more")),
        (TRAIN, "spec", lambda draft: draft.prepare.spec.feature_parties.append("other")),
        (TRAIN, "submission", lambda draft: setattr(draft.prepare, "submission", "1")),
        (TRAIN, "spec", lambda draft: draft.prepare.spec.parameters.forest.SetInParent()),
        (TRAIN, "spec", lambda draft: draft.ClearField("prepare")),
        (PREDICT, "evaluate", lambda draft: setattr(draft.open_model, "evaluate", True)),
        (PREDICT, "table", lambda draft: setattr(draft.open_model, "table", "other")),
        (PREDICT, "serve", lambda draft: setattr(draft.open_model, "serve", True)),
        (PREDICT, "model", lambda draft: setattr(draft.open_model, "model", "other")),
        (PREDICT, "records_file", lambda draft: setattr(draft.open_model, "records_file", "all")),
        (PREDICT, "prediction", lambda draft: setattr(draft.open_model, "prediction", "1")),
        (
            PREDICT,
            "parameters.eini.key_bits",
            lambda draft: setattr(draft.open_model.parameters.eini, "key_bits", 1024),
        ),
        (PREDICT, "parameters.eini", lambda draft: draft.open_model.parameters.masked.SetInParent()),
        (PREDICT, "away", lambda draft: draft.open_model.away.append("feature-b")),
        (ALIGN, "answer", lambda draft: setattr(draft.open_preview, "answer", "records")),
        (ALIGN, "table", lambda draft: setattr(draft.open_preview, "table", "other")),
        (ALIGN, "parties", lambda draft: draft.open_preview.parties.append("other")),
        (ALIGN, "submission", lambda draft: setattr(draft.open_preview, "submission", "1")),
    ],
)
def test_another_draft_is_not_signed(request_: Any, field: str, change: Callable[[jobs_pb2.Drafted], None]) -> None:
    """The error names the field."""
    draft = _draft(request_)
    change(draft)
    with pytest.raises(
        Refused, match=rf"draft of job {request_.job} is not what was asked for: {field}.* differs; not"
    ):
        checked(request_, draft)


@pytest.mark.parametrize("nonce", ["", "7x", "-1", "1" * 21])
def test_a_job_without_a_nonce_is_refused(nonce: str, tmp_path: Any) -> None:
    """Its operator has another release."""
    from treetap.coordinator.runtime.journal import Journal
    from treetap.coordinator.runtime.metrics import CoordinatorMetrics

    jobs = Jobs("coordinator", {}, None, Journal(tmp_path), 5.0, CoordinatorMetrics("coordinator"))  # type: ignore[arg-type]
    requests: tuple[Any, ...] = (TRAIN, PREDICT, ALIGN)
    for request in requests:
        bare = type(request)()
        bare.CopyFrom(request)
        bare.submission = nonce
        with pytest.raises(ConfigError, match="has no nonce of its submission"):
            jobs.submit(bare)
