"""`train --check`: every party says what is against a job, by the same rules as its opening; nothing is kept of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.pivodl import small_job
from tests.pivodl.jobs import policies
from tests.replay import HERE, JOB, ORACLE, PARAMS
from tests.simulator import COORDINATOR, Federation, Message
from tests.worlds import PARTIES, assert_oracles_model, spec
from treetap.errors import ConfigError, Overloaded
from treetap.party import node
from treetap.party.config import PartyConfig
from treetap.party.defences.settings import Defences
from treetap.party.protocols import role_for_training
from treetap.party.runtime.context import Role, StepContext
from treetap.trees.params import ForestParams
from treetap.wire.v2 import jobs_pb2, setup_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES


async def _checked(
    federation: Federation, job: setup_pb2.JobSpec = JOB, name: str = "job", by: str = COORDINATOR
) -> dict[str, str]:
    """Who answered, and with what error."""
    asked = jobs_pb2.SubmitRequest(job=name, spec=job)
    answers = [answer async for reply in federation.jobs_of(by).submissions.check(asked) for answer in reply.answers]
    assert len({answer.party for answer in answers}) == len(answers)
    return {answer.party: answer.error for answer in answers}


def _held(federation: Federation) -> dict[Path, bytes]:
    """All files of all processes."""
    return {path: path.read_bytes() for path in sorted(federation.folder.rglob("*")) if path.is_file()}


def _folders(federation: Federation) -> set[Path]:
    return {path for path in federation.folder.rglob("*") if path.is_dir()}


JOBS: dict[str, tuple[Any, setup_pb2.JobSpec, dict[str, dict[str, Any]]]] = {
    "boosting": (HERE, JOB, {}),
    "a lattice": (
        HERE,
        spec(PARAMS, scheme="lattice"),
        {party: {"keys": {"schemes": ["lattice"]}} for party in PARTIES},
    ),
    "forest": (HERE, spec(ForestParams(n_estimators=2, max_depth=2, max_bin=3), obfuscation="standard"), {}),
    "pivodl": (small_job.HERE, small_job.JOB, policies(small_job.JOB)),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("name", JOBS)
async def test_a_job_that_could_begin_leaves_no_trace(name: str, tmp_path: Path) -> None:
    """No file, session or transcript at any process, no message between parties; the job itself then runs."""
    here, job, own = JOBS[name]

    federation = Federation(tmp_path, here.tables, policies=own, record="both")
    before, folders = _held(federation), _folders(federation)
    assert await _checked(federation, job) == dict.fromkeys(PARTIES, "")
    assert (_held(federation), _folders(federation)) == (before, folders)
    assert {(message.sender, message.word) for message in federation.log} == {("coordinator", "check_job")}
    assert not any(federation.node(party)._sessions for party in PARTIES)
    assert list(federation.jobs.status("")) == []
    assert (await federation.train(job)).state == "finished"


@pytest.mark.parametrize(
    "waits_for", [{"people": {"approval": "manual", "approvers": ["ann"]}}, {"people": {"operators": ["operator"]}}]
)
async def test_a_job_that_would_wait_for_people_is_said_to(
    waits_for: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No approval is asked for by a check, and no table is read that only an approval or a signature opens."""
    prepared: list[str] = []

    def role_for(config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> Role:
        prepared.append(config.name)
        return role_for_training(config, context, spec)

    monkeypatch.setattr("treetap.party.opening.role_for_training", role_for)

    policies = {FEATURE: waits_for}
    federation = Federation(tmp_path, HERE.tables, policies=policies)
    asked = jobs_pb2.SubmitRequest(job="job", spec=JOB)
    answers = [answer async for reply in federation.jobs.submissions.check(asked) for answer in reply.answers]
    assert {answer.party for answer in answers if answer.would_wait} == {FEATURE}
    assert [answer.error for answer in answers] == [""] * 3
    assert sorted(prepared) == sorted(set(PARTIES) - {FEATURE})
    assert federation.node(FEATURE).approvals.listed() == []


async def test_all_refusals_come_together(tmp_path: Path) -> None:
    """Of a policy every line; of the tables of other parties, too. The party that refuses has not read its own."""
    tables = {party: (columns, dict(content)) for party, (columns, content) in HERE.tables.items()}
    spoiled = tables[OTHER][1]["train"]
    twice = pa.array(["r00000", "r00000", *spoiled.column("id").to_pylist()[2:]])
    tables[OTHER][1]["train"] = spoiled.set_column(0, "id", twice)

    policy = {
        FEATURE: {
            "people": {"label_holders": [], "peers": []},
            "emits": {"CANDIDATE_SUM": [], "SIZE": [], "CONTROL": ["*"]},
        }
    }
    federation = Federation(tmp_path, tables, policies=policy)
    next(iter(federation.configs[FEATURE].tables["train"].local())).unlink()
    answers = await _checked(federation)
    assert answers[LABEL_HOLDER] == ""
    for line in (f'`label_holders = ["{LABEL_HOLDER}"]`', f'`peers = ["{OTHER}"]`', "does not send CANDIDATE_SUM"):
        assert line in answers[FEATURE]
    assert f'CANDIDATE_SUM = ["{LABEL_HOLDER}"]' in answers[FEATURE]
    assert "BLINDED_ID" not in answers[FEATURE]  # which the policy sends to whom it names
    assert "parquet" not in answers[FEATURE]
    assert OTHER in answers[OTHER]
    assert "train.parquet" in answers[OTHER]


async def test_a_coordinator_that_is_not_obeyed_checks_nothing(tmp_path: Path) -> None:
    """As with a job; nor does a party answer that is not among the parties of the job."""
    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: {"people": {"coordinators": ["another"]}}})
    answers = await _checked(federation)
    assert answers[FEATURE].startswith(f"coordinator is not a coordinator that {FEATURE} obeys")
    assert {answers[LABEL_HOLDER], answers[OTHER]} == {""}


async def test_a_party_that_is_away_is_one_answer_of_several(tmp_path: Path) -> None:
    """And a name that is taken one of the coordinator's."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(JOB)).state == "finished"
    federation.kill(OTHER)
    answers = await _checked(federation)
    assert answers["coordinator"] == "there is a job 'job' already (finished); choose another name"
    assert answers[OTHER]
    assert {answers[LABEL_HOLDER], answers[FEATURE]} == {""}
    with pytest.raises(ConfigError, match="knows no party"):
        await _checked(federation, _with_party("nobody"))


def _with_party(name: str) -> setup_pb2.JobSpec:
    job = setup_pb2.JobSpec()
    job.CopyFrom(JOB)
    job.feature_parties[0] = name
    return job


@pytest.mark.parametrize(("budget", "refused"), [(2.0, False), (0.5, True)])
async def test_noisy_labels_are_neither_drawn_nor_charged(budget: float, refused: bool, tmp_path: Path) -> None:
    """The check says whether the budget has room, and ends before the draw."""

    defences = {LABEL_HOLDER: Defences.model_validate({"label_dp": {"epsilon": 1.0}})}
    policy = {LABEL_HOLDER: {"labels": {"label_budget": budget}}}
    federation = Federation(tmp_path, HERE.tables, policies=policy, defences=defences)
    before = _held(federation)
    answers = await _checked(federation)
    assert ("label_budget = 0.5" in answers[LABEL_HOLDER]) is refused
    assert bool(answers[LABEL_HOLDER]) is refused
    assert _held(federation) == before


async def test_one_check_at_a_time_and_none_without_room(tmp_path: Path) -> None:
    """At the coordinator and at a party; a job under way takes the room of a check."""
    federation = Federation(tmp_path, HERE.tables)
    federation.node(FEATURE)._checking = True
    assert (await _checked(federation))[FEATURE] == f"{FEATURE} is checking another job; ask again"
    federation.node(FEATURE)._checking = False
    first = federation.jobs.submissions.check(jobs_pb2.SubmitRequest(spec=JOB))
    await anext(first)
    with pytest.raises(Overloaded, match="has another job checked"):
        await _checked(federation)
    await first.aclose()
    busy = federation.configs[OTHER].model_copy(update={"most_jobs": 1})
    federation.node(OTHER).go_by(busy)
    said: list[str] = []

    def during(message: Message) -> None:
        if message.word == "build_histograms" and not message.served:
            federation.hook = None
            federation.process("coordinator").run(look())

    async def look() -> None:
        said.append((await _checked(federation, name="second"))[OTHER])

    federation.hook = during
    assert (await federation.train(JOB)).state == "finished"
    assert said == [f"{OTHER} has 1 jobs under way (most_jobs = 1 in its file)"]
    assert_oracles_model(federation.states, ORACLE)


async def test_a_name_that_a_party_has_for_another_job_is_said(tmp_path: Path) -> None:
    """Of another coordinator, under way or published; as the opening of the job would refuse it."""
    federation = Federation(tmp_path, HERE.tables, coordinators=(COORDINATOR, "second"))
    said: list[dict[str, str]] = []

    async def look() -> None:
        said.append(await _checked(federation, by="second"))

    def during(message: Message) -> None:
        if message.word == "build_histograms" and not message.served:
            federation.hook = None
            federation.process("second").run(look())

    federation.hook = during
    assert (await federation.train(JOB)).state == "finished"
    assert said == [dict.fromkeys(PARTIES, f"job job belongs to coordinator {COORDINATOR}, not to second")]
    after = await _checked(federation, by="second")
    for party in PARTIES:
        assert f"{party}: there are files of another job of this name" in after[party]


@pytest.mark.parametrize("policy", [{}, {"people": {"label_holders": []}}])
async def test_the_table_of_a_check_is_let_go(
    policy: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a refusal: a party looks for garbage rarely, and what it has read may be in a cycle."""
    looks: list[int] = []
    monkeypatch.setattr(node, "collect_ended", lambda: looks.append(1))

    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: policy})
    await _checked(federation)
    assert len(looks) == len(PARTIES)
