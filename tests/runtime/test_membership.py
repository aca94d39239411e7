"""Members of a federation, and names that are given back.

- A job has only parties that the policies of its other parties name, whatever a coordinator says.
- A job that fails before its first tree gives its name back; one that has stored a tree, or opened draws, keeps it.
"""

from __future__ import annotations

import asyncio
import errno
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pivodl import small_job
from tests.pivodl.jobs import policies
from tests.replay import HERE, JOB, ORACLE, ask, with_word
from tests.simulator import COORDINATOR, Federation, Message
from tests.worlds import PARTIES, assert_oracles_model
from treetap.errors import ConfigError, Interrupted, Malformed, Overloaded, Refused
from treetap.lab import demo
from treetap.lab.local_federation import LocalFederation
from treetap.models import line_file
from treetap.models.store import TREES
from treetap.party import config as party_config
from treetap.party.config import check_members
from treetap.party.policy import Policy, merged
from treetap.protocols.messages import Members, label_holder_opens
from treetap.protocols.prediction import predict_request
from treetap.protocols.registry import PREDICTION, TRAINING, prediction, training
from treetap.strict import read_toml
from treetap.wire.frame import name_of
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import control_pb2, exchange_pb2, jobs_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OF_PARTIES = [path for path in sorted(EXAMPLES.rglob("*.toml")) if {"name", "state"} <= set(read_toml(path))]
#: A second certificate of the federation, of a process that is no party.
SECOND = ("operator", "app", "coordinator")
UNNAMED: dict[str, Any] = {"people": {"label_holders": [], "peers": []}}
STRICT = {"columns": {"min_common_records": 1000}}


def _policy(source: str, folder: Path) -> Policy:
    if source == "demo":
        # The policy that demo, experiments and benchmarks write for a feature party.
        tables = {"train": {"path": "train.parquet", "id": "id"}}
        label = {"train": {**tables["train"], "label": demo.LABEL}}
        parties = {party: {"tables": label if party == LABEL_HOLDER else tables} for party in PARTIES}
        LocalFederation(folder, parties)._configure(FEATURE, dict(parties[FEATURE]))
        return party_config.read(folder / FEATURE / "config.toml").policy
    return party_config.read(EXAMPLES / source / FEATURE / "party.toml").policy


def _members(request: control_pb2.StepRequest, word: str, first: str, others: list[str]) -> None:
    """Write the parties of a job into the request that opens it."""
    if word == "prepare":
        request.setup.prepare.spec.aggregator = first
        request.setup.prepare.spec.feature_parties[:] = others
    else:
        request.prediction.open_model.recipient = first
        request.prediction.open_model.feature_parties[:] = others


@pytest.mark.parametrize("source", ["demo", "compose", "hosts"])
async def test_a_stolen_coordinator_key_and_a_second_certificate_open_no_table(source: str, tmp_path: Path) -> None:
    """Under policies as they are written no certificate but the label holder's opens sums, none but parties' join."""
    policy = _policy(source, tmp_path / "written").model_dump()

    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: merged(policy, {"keys": {"min_key_bits": 512}})})
    for word in ("prepare", "open_model"):
        for second in (*SECOND, OTHER):
            request = with_word(word, job=f"theft-{second}")
            _members(request, word, second, [FEATURE])
            with pytest.raises(Refused, match=re.escape(f'label_holders = [..., "{second}"]')):
                await ask(federation, FEATURE, request)
        for second in SECOND:
            request = with_word(word, job=f"theft-{second}")
            _members(request, word, LABEL_HOLDER, [second, FEATURE])
            with pytest.raises(Refused, match=re.escape(f'peers = [..., "{second}"]')):
                await ask(federation, FEATURE, request)
    assert list((federation.state(FEATURE) / "jobs").iterdir()) == []


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("party", PARTIES)
@pytest.mark.parametrize("kind", ["training", "prediction"])
async def test_a_party_that_names_nobody_refuses_every_job_with_the_lines_to_add(
    kind: str, party: str, tmp_path: Path
) -> None:
    """The lines of the refusal, written into the policy file as they are, let the job go on."""
    federation = Federation(tmp_path, HERE.tables, policies={party: UNNAMED if kind == "training" else {}})
    status = await federation.train(JOB)
    if kind == "prediction":
        assert status.state == "finished"
        _restart(federation, party, UNNAMED)
        status = await federation.predict(predict_request(model="job"))
    assert status.state == "failed"
    assert f"Refused: {party} takes no part in a job with parties that its policy does not name" in status.error
    assert status.error.isprintable()  # one line on the operator's screen and in logs
    named = tomllib.loads("\n".join(re.findall(r"the line `([^`]*)`", status.error)))
    others = [other for other in PARTIES if other != party]
    assert named == (
        {"peers": others}
        if party == LABEL_HOLDER
        else {"label_holders": [LABEL_HOLDER], "peers": [other for other in others if other != LABEL_HOLDER]}
    )
    _restart(federation, party, {"people": named})
    again = federation.predict(predict_request(model="job")) if kind == "prediction" else federation.resume()
    assert (await again).state == "finished"


def _restart(federation: Federation, party: str, policy: dict[str, Any]) -> None:
    federation.kill(party)
    federation.policies = {party: policy}
    federation.configs[party] = federation.configs[party].under(federation.policy(party))
    federation.start(party)


def test_where_several_open_sums_all_are_label_holders(tmp_path: Path) -> None:
    """A protocol says who opens sums; a peer is not enough for that, and a label holder is no peer by itself."""
    config = Federation(tmp_path, HERE.tables).configs[FEATURE]
    members = Members("coordinator", LABEL_HOLDER, (FEATURE, OTHER))

    def all_open(members: Members) -> Sequence[str]:
        return members.parties

    def check(label_holders: list[str], peers: list[str], **changes: Any) -> None:
        policy = Policy(people={"label_holders": label_holders, "peers": peers})
        check_members(config.under(policy), replace(members, **changes), all_open)

    check([LABEL_HOLDER, OTHER], [])
    with pytest.raises(Refused, match=re.escape(f'label_holders = [..., "{OTHER}"]')) as caught:
        check([LABEL_HOLDER], [OTHER])
    assert "peers = [" not in str(caught.value)
    check_members(
        config.under(Policy(people={"label_holders": [LABEL_HOLDER], "peers": [OTHER]})), members, label_holder_opens
    )
    with pytest.raises(Refused, match=re.escape(f'peers = ["{OTHER}"]')):
        check_members(
            config.under(Policy(people={"label_holders": [LABEL_HOLDER, OTHER]})), members, label_holder_opens
        )
    with pytest.raises(Malformed, match="is not a name for a party"):
        check([], [], aggregator='x"]\nrecord = "both')


def test_every_protocol_says_who_opens_sums() -> None:
    """The label holder does in each that has one; where all have the same role, they are peers."""
    members = Members("coordinator", LABEL_HOLDER, (FEATURE, OTHER))
    trainings = [training(name) for name in TRAINING]
    apart = [each for each in trainings if not each.one_role]
    for described in (*apart, *map(prediction, PREDICTION)):
        assert LABEL_HOLDER in described.opens_sums(members)
    assert [each.field for each in trainings if each.one_role and not each.opens_sums(members)] == ["pivodl"]


@pytest.mark.parametrize("file", OF_PARTIES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_the_parties_of_the_examples_name_each_other(file: Path) -> None:
    """The example's job is one that each of its parties takes part in."""
    config = party_config.read(file)
    if file.parent.parent.name == "pivodl-hospitals":
        members, opens_sums = ("north", "south", "east", "west"), training("pivodl").opens_sums
    else:
        members = next(names for names in (("bank", "telco", "shop"), PARTIES) if config.name in names)
        opens_sums = label_holder_opens
    check_members(config, Members("coordinator", members[0], tuple(members[1:])), opens_sums)


def _relent(federation: Federation, party: str = FEATURE) -> None:
    """Have a party's policy permit the job."""
    policy = federation.configs[party].policy.with_lines({"columns": {"min_common_records": 2}})
    federation.node(party).go_by(federation.configs[party].under(policy))


def _spoil(federation: Federation, kind: str, round_: int) -> None:
    """Have the messages of a kind come without content in a round, so that the attempt fails."""

    def tampered(_: str, __: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == kind and parcel.round == round_:
            parcel.ClearField(parcel.WhichOneof("body"))

    federation.tamper = tampered


def _no_files(federation: Federation) -> bool:
    return not any(list((state / "jobs").iterdir()) for state in federation.states.values())


async def test_a_refused_job_is_submitted_again_under_its_name(tmp_path: Path) -> None:
    """The model is the oracle's; attempts are counted on, by all, and after the coordinator's restart too."""

    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: STRICT}, record="received")
    for number in (1, 2):
        refused = await federation.train(JOB)
        assert (refused.state, refused.released, refused.attempt) == ("failed", True, number)
        assert not refused.bad_input  # a refusal is no fault of the input
        assert _no_files(federation)
    federation.restart(COORDINATOR)
    resumed = await federation.resume()  # of which nothing is left either
    assert (resumed.state, resumed.released, resumed.attempt) == ("failed", True, 3)
    _relent(federation)
    finished = await federation.train(JOB)
    assert (finished.state, finished.released, finished.attempt) == ("finished", False, 4)
    assert [status.attempt for status in federation.jobs.status("")] == [4]
    assert_oracles_model(federation.states, ORACLE)
    recorded = TranscriptReader(federation.state(LABEL_HOLDER) / "transcripts" / "job")
    assert {record.attempt for record in recorded} == {1, 2, 3, 4}
    with pytest.raises(ConfigError, match=r"a job 'job' already \(finished\); choose another name$"):
        await federation.train(JOB)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("round_", [0, 1])
async def test_the_first_stored_tree_binds_the_name(round_: int, tmp_path: Path) -> None:
    """A failure while it grows gives the name back; one in the second tree keeps the files, and says how to go on."""

    federation = Federation(tmp_path, HERE.tables)
    _spoil(federation, "candidate_sums", round_)
    failed = await federation.train(JOB)
    assert (failed.state, failed.released, failed.stored_trees) == ("failed", round_ == 0, round_)
    assert _no_files(federation) is (round_ == 0)
    federation.tamper = None
    if round_:
        cure = "or give this one up: treetap cancel job, then treetap prune job$"
        with pytest.raises(ConfigError, match=cure):
            await federation.train(JOB)
        assert len((federation.state(LABEL_HOLDER) / "jobs" / "job" / TREES).read_text().splitlines()) == 1
        assert (await federation.resume()).state == "finished"
    else:
        assert (await federation.train(JOB)).state == "finished"
    assert_oracles_model(federation.states, ORACLE)


async def test_a_party_that_does_not_confirm_keeps_the_name(tmp_path: Path) -> None:
    """It may hold files: cancelling reaches it later, pruning frees the name."""

    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: STRICT})

    def away(message: Message) -> None:
        if message.word == "leave" and message.to == OTHER and federation.alive(OTHER):
            federation.kill(OTHER)

    federation.hook = away
    failed = await federation.train(JOB)
    assert (failed.state, failed.released) == ("failed", False)
    federation.hook = None
    federation.start(OTHER)
    _relent(federation)
    with pytest.raises(ConfigError, match="treetap cancel job, then treetap prune job"):
        await federation.train(JOB)
    assert (await federation.jobs.cancel("job")).state == "cancelled"
    with pytest.raises(ConfigError, match=r"or give this one up: treetap prune job$"):
        await federation.train(JOB)
    federation.jobs.prune(["job"], 0, dry_run=False)
    assert (await federation.train(JOB)).state == "finished"


async def test_a_job_that_was_put_off_is_still_at_its_first_try(tmp_path: Path) -> None:
    """A busy party refuses it once it has room: the job fails, and is not one to be resumed."""

    federation = Federation(tmp_path, HERE.tables)
    busy = federation.configs[FEATURE].model_copy(update={"most_jobs": 1})
    federation.node(FEATURE).go_by(busy)
    for name in ("one", "two"):
        federation.jobs.submit(jobs_pb2.SubmitRequest(job=name, spec=JOB))

    def later(_: Message) -> None:
        if federation.jobs.status("two")[0].state == "waiting":
            federation.hook = None
            federation.node(FEATURE).go_by(busy.under(Policy.model_validate({"people": {"label_holders": []}})))

    federation.hook = later
    status = await federation.jobs.wait("two")
    assert status.attempt > 1
    assert (status.state, status.released) == ("failed", True)
    await federation.jobs.wait("one")


async def test_a_name_is_free_only_while_the_job_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits to be resumed has it again, as has one that is cancelled; a full disk loses no record of it."""

    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: STRICT})
    assert (await federation.train(JOB)).released
    with monkeypatch.context() as full:
        full.setattr(line_file, "write_whole", _refused)
        with pytest.raises(Interrupted, match="cannot be written"):
            await federation.train(JOB)
    assert federation.jobs.status("job")[0].released
    federation.jobs._most = 0
    federation.jobs.resume("job")
    with pytest.raises(ConfigError, match=r"a job 'job' already \(waiting\)"):
        await federation.train(JOB)
    assert (await federation.jobs.cancel("job")).state == "cancelled"
    with pytest.raises(ConfigError, match=r"a job 'job' already \(cancelled\)"):
        await federation.train(JOB)


def _refused(path: Path, _: bytes) -> None:
    raise OSError(errno.ENOSPC, "no space left on device", str(path))


@pytest.mark.parametrize(("kind", "released"), [("party_keys", True), ("party_nonce", False)])
async def test_nonces_that_are_open_bind_a_job_of_pivodl(kind: str, released: bool, tmp_path: Path) -> None:
    """A new submission would draw the roles of parties again: whoever aborts could choose among draws."""

    federation = Federation(tmp_path, small_job.HERE.tables, policies=policies(small_job.JOB))
    _spoil(federation, kind, 0)
    failed = await federation.train(small_job.JOB)
    assert (failed.state, failed.released) == ("failed", released)
    assert _no_files(federation) is released


async def test_a_prediction_and_a_preview_give_their_names_back(tmp_path: Path) -> None:
    """Nothing of them is kept once they have failed."""

    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(JOB)).state == "finished"
    for _ in range(2):
        assert (await federation.predict(predict_request(model="job", job="p", table="none"))).released
        assert (await federation.preview(job="q")).released
    few = federation.configs[FEATURE].policy.with_lines({"columns": {"min_prediction_records": 1000}})
    federation.node(FEATURE).go_by(federation.configs[FEATURE].under(few))
    for _ in range(2):
        refused = await federation.predict(predict_request(model="job", job="p"))
        assert (refused.state, refused.bad_input, refused.released) == ("failed", False, True)
    _relent(federation)
    assert (await federation.predict(predict_request(model="job", job="p"))).state == "finished"


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("by", ["the coordinator's end", "a party without room"])
async def test_a_job_that_waits_in_its_midst_keeps_its_trees(by: str, tmp_path: Path) -> None:
    """A line of waiting behind an attempt does not say that nothing of it is left."""
    federation = Federation(tmp_path, HERE.tables)
    strict = federation.configs[FEATURE].policy.with_lines(STRICT)

    def broken(message: Message) -> None:
        if message.word != "build_histograms" or not federation.jobs.status("job")[0].stored_trees:
            return
        federation.hook = None
        federation.node(FEATURE).go_by(federation.configs[FEATURE].under(strict))
        if by == "a party without room":
            raise Overloaded("the message of a call did not come and find room")
        federation.kill(COORDINATOR)

    federation.hook = broken
    federation.jobs.submit(jobs_pb2.SubmitRequest(job="job", spec=JOB))
    await asyncio.sleep(60)
    if not federation.alive(COORDINATOR):
        federation.start(COORDINATOR)
        federation.jobs._most = 0
        federation.jobs.resume("job")
        assert federation.jobs.status("job")[0].state == "waiting"
        federation.jobs._most = 1
        federation.jobs._admit()
    failed = await federation.jobs.wait("job")
    assert (failed.state, failed.released, failed.attempt) == ("failed", False, 2)
    assert len((federation.state(LABEL_HOLDER) / "jobs" / "job" / TREES).read_text().splitlines()) == 1
    _relent(federation)
    assert (await federation.resume()).state == "finished"
    assert_oracles_model(federation.states, ORACLE)
