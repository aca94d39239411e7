"""Limits of a policy: on a job's parameters, and on each partner over its jobs, each at its edge."""

from __future__ import annotations

import asyncio
import time
import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.documents import blocks
from tests.pivodl import small_job
from tests.pivodl.jobs import PARAMS as PIVODL
from tests.replay import HERE, JOB, PARAMS
from tests.simulator import COORDINATOR, Federation, Message, failed, finished
from tests.splitnn.small_job import INSTALLED
from tests.splitnn.small_job import JOB as NETWORK
from tests.splitnn.small_job import PARAMS as SPLITNN
from tests.trainings import policies
from tests.worlds import PARTIES, spec, world
from treetap.errors import Refused
from treetap.models.store import TREES
from treetap.party.approvals.job_checks import checks_of_training
from treetap.party.config import PartyConfig
from treetap.party.policy import Policy, merged
from treetap.party.runtime.job_store import JobStore
from treetap.party.runtime.ledger import DAY_S, Kind, Ledger, ledger_of
from treetap.protocols.limits import PARAMETERS, Limits
from treetap.protocols.messages import members_of
from treetap.protocols.prediction import predict_request
from treetap.protocols.registry import TRAINING, training
from treetap.trees.job_params import JobParams
from treetap.trees.params import ForestParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, jobs_pb2, setup_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
NEURAL = [pytest.mark.skipif(not INSTALLED, reason="needs treetap[neural]"), pytest.mark.second_tier]
JOBS: Mapping[str, JobParams] = {
    "boosting": replace(PARAMS, min_child_weight=2.0),
    "forest": ForestParams(n_estimators=2, max_depth=2, max_bin=3, min_samples_leaf=2),
    "pivodl": replace(PIVODL, epsilon=4.0),
    "splitnn": SPLITNN,
}
#: Key → a limit that a value breaks, and one that it keeps, as closely as they can be.
EDGES: Mapping[str, Any] = {
    "min_child_weight": lambda given: (given + 1e-9, given),
    "min_samples_leaf": lambda given: (given + 1, given),
    "instance_threshold": lambda given: (given + 1, given),
    "min_samples": lambda given: (given + 1, given),
    "epsilon": lambda given: (given - 1e-9, given),
    "gain_comparison": lambda given: ("secure", given),
}


def test_every_limit_is_of_a_parameter_and_every_protocol_has_some() -> None:
    """The table has a row for each key, and each row is of a protocol's parameters."""
    assert set(Limits.model_fields) == set(PARAMETERS)
    assert set(JOBS) == set(TRAINING)
    for name in TRAINING:
        own = {field.name for field in fields(training(name).params)}
        assert own & {row.name for row in PARAMETERS.values()}, name


@pytest.mark.parametrize("protocol", TRAINING)
@pytest.mark.parametrize("key", PARAMETERS)
def test_a_limit_is_kept_at_its_edge(key: str, protocol: str) -> None:
    """The refusal names party, the job's value, the limit and what to do; a job without the parameter passes."""
    params, row = JOBS[protocol], PARAMETERS[key]
    if row.name not in {field.name for field in fields(params)}:
        Limits.model_validate({key: "secure" if key == "gain_comparison" else 1 << 20}).check("bank", params)
        return
    given = getattr(params, row.name)
    broken, kept = EDGES.get(key, lambda value: (value - 1, value))(given)
    least = {"trees": 1, "epochs": 1, "max_depth": 1, "max_bin": 2}.get(key)
    if least is not None and broken < least:
        params = replace(params, **{row.name: given + 1})
        broken, kept, given = given, given + 1, given + 1
    Limits.model_validate({key: kept}).check("bank", params)
    with pytest.raises(Refused) as refusal:
        Limits.model_validate({key: broken}).check("bank", params)
    said = str(refusal.value)
    assert said.startswith(f"bank takes no part in a job with {row.name} = {given!r}: its policy says {key} = ")
    assert f"under [limits]; train with {row.name} = {broken!r}" in said
    assert "send bank SIGHUP" in said


def test_noise_that_is_not_there_breaks_the_largest_epsilon() -> None:
    """The job's leaf weights would be exact; with secure comparisons asked for, those are taken."""
    with pytest.raises(Refused, match=r"in a job without epsilon: its policy says epsilon = 8.0 .* epsilon = 8.0 or"):
        Limits(epsilon=8.0).check("bank", replace(PIVODL, epsilon=None))
    Limits(gain_comparison="secure").check("bank", replace(PIVODL, gain_comparison="secure"))


def test_all_limits_that_a_job_breaks_are_named_at_once() -> None:
    with pytest.raises(Refused) as refusal:
        Limits(trees=1, max_depth=1, max_bin=2).check("bank", PARAMS)
    assert [line.split(" = ")[0].rsplit(" ", 1)[1] for line in str(refusal.value).splitlines()] == [
        "n_estimators",
        "max_depth",
        "max_bin",
    ]


@pytest.mark.parametrize(
    "protocol", [pytest.param(name, marks=NEURAL) if name == "splitnn" else name for name in TRAINING]
)
def test_the_checks_of_an_opening_have_the_limits(protocol: str, tmp_path: Path) -> None:
    """Of every protocol, at every party."""
    params: Any = JOBS[protocol]
    limit = {"epochs": 1} if protocol == "splitnn" else {"max_depth": 1}
    job = spec(replace(params, **({"epochs": 2} if protocol == "splitnn" else {"max_depth": 2})))
    for party in PARTIES:
        said = []
        for limits in ({}, limit):
            config = PartyConfig.model_validate({"name": party, "state": tmp_path, "insecure": True})
            config = config.under(Policy.model_validate({"limits": limits}))
            faults = []
            for check in checks_of_training(config, setup_pb2.Prepare(spec=job), members_of(job, COORDINATOR)):
                try:
                    check()
                except Refused as fault:
                    faults.append(str(fault))
            said.append([fault for fault in faults if "[limits]" in fault])
        assert said[0] == []
        (refused,) = said[1]
        assert refused.startswith(f"{party} takes no part in a job with {next(iter(limit))} = 2")


async def _checked(federation: Federation, name: str = "job") -> dict[str, str]:
    asked = jobs_pb2.SubmitRequest(job=name, spec=JOB)
    return {
        answer.party: answer.error
        async for reply in federation.jobs_of(COORDINATOR).submissions.check(asked)
        for answer in reply.answers
    }


PARTNERS: Mapping[str, tuple[dict[str, Any], str]] = {
    "limits": ({"limits": {"max_depth": 1}}, f"{FEATURE} takes no part in a job with max_depth = "),
    "tables": (
        {"partners": {LABEL_HOLDER: {"tables": ["loans"]}}},
        f"{FEATURE} takes no part in a job with {LABEL_HOLDER} that uses table 'train': its policy says tables = "
        f'["loans"] under [partners.{LABEL_HOLDER}]; if it should, add the name there and send {FEATURE} SIGHUP',
    ),
    "protocols": (
        {"partners": {COORDINATOR: {"protocols": ["forest", "masked"]}}},
        f"in a job with {COORDINATOR} that uses protocol 'boosting': its policy says protocols = ",
    ),
    "no job": ({"partners": {"*": {"jobs_per_day": 0}}}, f"{FEATURE} takes no part: the jobs_per_day of its policy"),
    "no records": ({"partners": {OTHER: {"records_per_day": 0}}}, f"{FEATURE} takes no part: the records_per_day of"),
}


@pytest.mark.parametrize("name", PARTNERS)
async def test_a_job_is_refused_at_its_opening_and_by_a_check_before(name: str, tmp_path: Path) -> None:
    """By the same sentence; nothing is sent between parties, and nothing is charged."""
    policy, said = PARTNERS[name]

    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: policy})
    answers = await _checked(federation)
    assert said in answers[FEATURE]
    assert {answers[LABEL_HOLDER], answers[OTHER]} == {""}
    failed(await federation.train(JOB), said)
    assert {message.sender for message in federation.log} == {COORDINATOR}
    assert ledger_of(federation.state(FEATURE)).charges() == []


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("key", ["records_per_day", "jobs_per_day"])
async def test_trainings_with_a_partner_are_limited_a_day(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Over two jobs, through a restart, at the edge; a day gives them back; another partner has its own."""
    began, common = time.time(), len(HERE.y)
    rules = {LABEL_HOLDER: {key: 2 if key == "jobs_per_day" else 2 * common}, COORDINATOR: {key: 1000 * common}}

    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: {"partners": rules}})
    for name in ("one", "two"):
        assert (await _checked(federation, name))[FEATURE] == ""
        assert (await federation.train(JOB, name)).state == "finished"
    charges = ledger_of(federation.state(FEATURE)).charges
    assert [one.occasion.job for one in charges(Kind.TRAINING)] == ["one", "two"]
    assert [one.amount for one in charges(Kind.RECORDS)] == [common, common]
    assert {one.occasion.table for one in charges()} == {"train"}
    assert {one.occasion.partners for one in charges()} == {(LABEL_HOLDER, OTHER, COORDINATOR)}
    federation.restart(FEATURE)
    said = f"{FEATURE} takes no part: the {key} of its policy are used up; its log says until when"
    assert (await _checked(federation, "three"))[FEATURE] == said
    before = len(federation.log)
    status = await federation.train(JOB, "three")
    assert (status.state, status.error) == ("failed", f"LimitReached: {said}")
    assert {message.sender for message in federation.log[before:]} == {COORDINATOR}
    assert f"in 24 hours there were as many with {LABEL_HOLDER}; the next may come after " in caplog.text
    monkeypatch.setattr(time, "time", lambda: began + DAY_S + 60)
    assert (await federation.train(JOB, "four")).state == "finished"


async def test_an_opening_that_fails_is_charged(tmp_path: Path) -> None:
    """Its error tells of the table as an answer does, so that no coordinator looks again and again."""
    limit = {"partners": {COORDINATOR: {"jobs_per_day": 1}}}
    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: limit})
    tables = dict(federation.configs[FEATURE].tables)
    tables["train"] = tables["train"].model_copy(update={"path": Path("/nowhere/train.parquet")})
    federation.configs[FEATURE] = federation.configs[FEATURE].model_copy(update={"tables": tables})
    federation.start(FEATURE)
    assert "there is no such file" in (await federation.train(JOB)).error
    assert [str(one.kind) for one in ledger_of(federation.state(FEATURE)).charges()] == ["training"]
    status = await federation.train(JOB, "again")
    assert f"{FEATURE} takes no part: the jobs_per_day of its policy are used up" in status.error


async def test_an_attempt_that_resumes_a_job_is_a_further_charge(tmp_path: Path) -> None:
    """So a coordinator cannot have one job begun again and again."""
    limit = {"partners": {LABEL_HOLDER: {"jobs_per_day": 1}}}
    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: limit})

    def kill(message: Any) -> None:
        if message.word == "candidate_sums" and not message.served:
            federation.hook = None
            federation.restart(FEATURE)

    federation.hook = kill
    status = await federation.train(JOB)
    assert status.state in ("failed", "interrupted")
    status = await federation.resume("job")
    assert f"{FEATURE} takes no part: the jobs_per_day of its policy are used up" in status.error


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("most", "goes"), [(len(HERE.y), True), (len(HERE.y) - 1, False)])
async def test_a_longer_list_of_a_partner_is_not_raised(most: int, goes: bool, tmp_path: Path) -> None:
    """In a ring the lists come by way of others, and the owner's limit counts."""
    limit = {"partners": {OTHER: {"largest_list": most}, LABEL_HOLDER: {"largest_list": 10**6}}}
    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: limit})
    job = spec(PARAMS)
    job.alignment = "psi"
    status = await federation.train(job)
    assert (status.state == "finished") is goes, status.error
    if not goes:
        assert f"{FEATURE} does not raise a list of {OTHER} with more than {most} ids" in status.error
        assert f"largest_list = {most} under [partners.{OTHER}]" in status.error


PREDICTIONS = ("interactive", "eini", "eini-lattice", "masked")


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", PREDICTIONS)
async def test_predictions_and_queries_are_limited(protocol: str, tmp_path: Path) -> None:
    """A record may be asked for twice; then no direction or mask leaves for it, and predictions end with the day's."""
    here, job = (small_job.HERE, small_job.JOB) if protocol == "masked" else (HERE, JOB)
    own = policies(job) if protocol == "masked" else {}
    limits = {"partners": {LABEL_HOLDER: {"queries_per_record": 2, "predictions_per_day": 3}}}

    federation = Federation(tmp_path, here.tables, policies={**own, FEATURE: merged(own.get(FEATURE, {}), limits)})
    assert (await federation.train(job)).state == "finished"
    for name in ("one", "two", "three", "four"):
        before = len(federation.log)
        status = await federation.predict(predict_request(protocol, model="job", job=name))
        sent = {message.word for message in federation.log[before:] if message.sender == FEATURE}
        if name in ("one", "two"):
            assert (status.state, status.error) == ("finished", "")
            continue
        assert status.state == "failed"
        assert not sent & {"route_answers", "masked_entries", "score_shares", "masked_sums"}
        if name == "three":
            assert f"{FEATURE} answers {LABEL_HOLDER} no more about" in status.error
            assert f"queries_per_record = 2 under [partners.{LABEL_HOLDER}]" in status.error
        else:
            assert f"{FEATURE} takes no part: the predictions_per_day of its policy are used up" in status.error
    kinds = [one.kind for one in ledger_of(federation.state(FEATURE)).charges()]
    assert kinds.count(Kind.PREDICTION) == 3


def test_weights_do_not_undo_the_least_child_weight() -> None:
    """A record counts for as much as its weight."""
    limits = Limits(min_child_weight=2.0)
    heavy = replace(PARAMS, min_child_weight=2.0, max_sample_weight=2.0, scale_pos_weight=1e4)
    says = r"min_child_weight = 2.0 of weights up to 20000: .* train with min_child_weight = 40000.0 or more, or change"
    with pytest.raises(Refused, match=says):
        limits.check("bank", heavy)
    limits.check("bank", replace(heavy, min_child_weight=4e4))
    limits.check("bank", replace(PARAMS, min_child_weight=2.0, scale_pos_weight=0.5))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("most", [3, 2, 4])
async def test_trees_of_a_base_model_are_counted(most: int, tmp_path: Path) -> None:
    """A chain of jobs grows no more trees than one job may."""
    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: {"limits": {"trees": most}}})
    assert (await federation.train(spec(replace(PARAMS, n_estimators=2)), "before")).state == "finished"
    job = spec(replace(PARAMS, n_estimators=2))
    job.base_model = "before"
    status = await federation.train(job)
    assert (status.state == "finished") is (most == 4), status.error
    if most < 4:
        remedy = "without a base model" if most == 2 else "with n_estimators = 1 or less"
        assert f"n_estimators = 2 after 2 trees of a base model: its policy says trees = {most}" in status.error
        assert f"train {remedy}, or change" in status.error


#: Three trees in each of its rounds.
CLASSES = replace(PARAMS, objective="multi:softprob", n_estimators=2)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("who", "most"), [(FEATURE, 5), (LABEL_HOLDER, 5), (FEATURE, 6), (FEATURE, 3)])
async def test_a_tree_of_each_class_counts(who: str, most: int, tmp_path: Path) -> None:
    """The label holder knows the classes, and refuses before the alignment; a feature party, the first tree beyond."""
    here = world(20, (1, 1, 1), seed=3, objective="multi:softprob", classes=3)

    federation = Federation(tmp_path, here.tables, policies={who: {"limits": {"trees": most}}})
    status = await federation.train(spec(CLASSES, obfuscation="standard"))
    assert (status.state == "finished") is (most == 6), status.error
    words = {message.word for message in federation.log if message.sender == who}
    if who == LABEL_HOLDER:
        assert f"{who} takes no part in a job with n_estimators = 2, rounds of 3 trees or more: " in status.error
        assert "train with n_estimators = 1 or less, or change" in status.error
        assert words == set()
    elif most == 5:
        assert f"{who} grows no tree after tree 4: its policy says trees = 5 under [limits], and " in status.error
        assert JobStore(federation.state(who) / "jobs" / "job", Path()).lines(TREES).count() == 5
    elif most == 3:
        assert "rounds of 2 trees or more: its policy says trees = 3 under [limits]; train with n_est" in status.error
        assert words == set()


def test_a_limit_of_fewer_trees_than_a_round_has_names_the_way_out() -> None:
    with pytest.raises(Refused, match='train with multi_strategy = "multi_output_tree", or change'):
        Limits(trees=2).check("bank", CLASSES, classes=3)
    Limits(trees=2).check("bank", replace(CLASSES, multi_strategy="multi_output_tree"), classes=3)
    Limits(trees=6).check("bank", CLASSES, classes=3)
    with pytest.raises(Refused, match="rounds of 3 trees or more after 1 trees of a base model"):
        Limits(trees=6).check("bank", CLASSES, base_trees=1, classes=3)


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ({"limits": {"tree": 3}}, "tree"),
        ({"limits": {"trees": 0}}, "greater than or equal to 1"),
        ({"partners": {"*": {"protocols": ["bosting"]}}}, "did you mean 'boosting'"),
        (
            {"people": {"peers": ["bank"]}, "partners": {"bnak": {}}},
            "partners.bnak: is not among .*; did you mean 'bank'",
        ),
        ({"partners": {"Bank!": {}}}, "partners"),
        ({"partners": {"*": {"jobs_per_day": -1}}}, "greater than or equal to 0"),
    ],
)
def test_a_wrong_limit_is_no_limit_that_is_ignored(policy: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        Policy.model_validate(policy)


STORIES: Mapping[str, tuple[Any, Any]] = {
    "boosting": (HERE, JOB),
    "forest": (HERE, spec(JOBS["forest"], obfuscation="standard")),
    "pivodl": (small_job.HERE, small_job.JOB),
    "splitnn": (HERE, NETWORK),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", ["boosting", "forest", "pivodl", pytest.param("splitnn", marks=NEURAL)])
async def test_every_protocol_charges_its_attempts_and_records(protocol: str, tmp_path: Path) -> None:
    """At every party, by the table's name, and a limit of none stops the second job of each."""
    assert set(STORIES) == set(TRAINING)
    here, job = STORIES[protocol]

    own = policies(job)
    limit = {"partners": {COORDINATOR: {"jobs_per_day": 1}}}
    federation = Federation(
        tmp_path, here.tables, policies={party: merged(own.get(party, {}), limit) for party in PARTIES}
    )
    status = finished(await federation.train(job))
    for party in PARTIES:
        charges = ledger_of(federation.state(party)).charges(Kind.TRAINING, Kind.RECORDS)
        assert [(str(one.kind), one.amount, one.occasion.table) for one in charges] == [
            ("training", 1, "train"),
            ("records", len(here.y), "train"),
        ]
    before = len(federation.log)
    status = await federation.train(job, "again")
    assert "takes no part: the jobs_per_day of its policy are used up" in status.error
    assert {message.sender for message in federation.log[before:]} == {COORDINATOR}


@pytest.mark.second_tier
async def test_noise_on_leaf_weights_is_charged_once_for_a_job(tmp_path: Path) -> None:
    """At the parties that draw some, with ε and δ."""
    job = spec(replace(small_job.PARAMS, epsilon=4.0), obfuscation="standard")

    federation = Federation(tmp_path, small_job.HERE.tables, policies=policies(job))
    finished(await federation.train(job))
    drawn = [ledger_of(state).charges(Kind.NOISED_WEIGHTS) for state in federation.states.values()]
    assert any(drawn)
    for charges in drawn:
        assert [(one.amount, dict(one.details)) for one in charges] in (
            [],
            [(4.0, {"delta": small_job.PARAMS.delta})],
        )


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("alignment", ["psi", "sorted-ids"])
async def test_nothing_leaves_before_its_charge_is_on_disk(alignment: str, tmp_path: Path) -> None:
    """Of any party, in each attempt: blinded ids after that of the attempt, the rest after that of the records."""
    killed, seen = list[str](), set[tuple[str, int, bool]]()
    job = spec(PARAMS, alignment=alignment)

    federation = Federation(tmp_path, HERE.tables)

    def look(sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        charges = Ledger(federation.state(sender)).charges()  # as another process reads it
        own = {one.kind for one in charges if one.occasion.attempt == parcel.attempt}
        aligning, word = parcel.WhichOneof("body") == "alignment", name_of(parcel)
        wanted = {Kind.TRAINING} if aligning else {Kind.TRAINING, Kind.RECORDS}
        assert wanted <= own <= {Kind.TRAINING, Kind.RECORDS}, word
        seen.add((sender, parcel.attempt, aligning))
        return parcel

    def kill(message: Message) -> None:
        if message.sender == FEATURE and message.word in {"blinded_ids", "candidate_sums"} - {*killed}:
            killed.append(message.word)
            federation.restart(FEATURE)

    federation.tamper, federation.hook = look, kill
    status = await federation.train(job)
    while status.state == "interrupted":
        await asyncio.sleep(200)
        status = await federation.resume("job")
    assert (status.state, status.error) == ("finished", "")
    for party in PARTIES:
        charges = ledger_of(federation.state(party)).charges(Kind.TRAINING)
        attempts = [one.occasion.attempt for one in charges]
        assert attempts == sorted(set(attempts))
        assert {attempt for sender, attempt, _ in seen if sender == party} <= set(attempts)
    await federation.close()
    assert killed[-1] == "candidate_sums"
    assert {party for party, _, aligning in seen if not aligning} == {*PARTIES}


@pytest.mark.parametrize("answer", ["count", "records"])
async def test_a_partners_previews_have_limits_of_their_own(answer: str, tmp_path: Path) -> None:
    """Fewer than the policy lets all; rows that a preview finds count as records, a count does not."""
    own = {"previews_per_day": 2, "records_per_day": 2 * len(HERE.y)}
    policy = {"columns": {"preview": "records", "min_common_records": 1}}

    policies = dict.fromkeys(PARTIES, policy)
    policies[FEATURE] = {**policy, "partners": {LABEL_HOLDER: own, OTHER: {"tables": ["loans"]}}}
    federation = Federation(tmp_path, HERE.tables, policies=policies)

    async def asked(name: str, *parties: str) -> str:
        return str((await federation.preview(*parties, job=name, answer=answer, table="train")).error)

    two = (LABEL_HOLDER, FEATURE)
    assert [await asked("one", *two), await asked("two", *two)] == ["", ""]
    charges = ledger_of(federation.state(FEATURE)).charges(Kind.RECORDS)
    assert [one.amount for one in charges] == ([len(HERE.y)] * 2 if answer == "records" else [])
    said = f"{FEATURE} takes no part: the previews_per_day of its policy are used up"
    assert said in await asked("three", *two)
    assert f"in a job with {OTHER} that uses table 'train'" in await asked("four", OTHER, FEATURE)
    assert await asked("five", LABEL_HOLDER, OTHER) == ""


def test_the_limits_of_the_guide_are_a_policy() -> None:
    """With the partner that it names among the peers."""
    shown = blocks(Path(__file__).resolve().parents[2] / "docs" / "configuration.md")
    (text,) = [block.text for block in shown if block.text.startswith("[limits]")]
    policy = Policy.model_validate({"people": {"peers": ["telco"]}, **tomllib.loads(text)})
    assert policy.limits.max_depth == 6
    assert policy.partners["telco"].records_per_day == 200_000
