"""A job has only parties that the policies of its other parties name, whatever a coordinator says."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.replay import HERE, JOB, ask, with_word
from tests.simulator import Federation
from tests.worlds import PARTIES
from treetap.errors import Malformed, Refused
from treetap.lab import demo
from treetap.lab.local_federation import LocalFederation
from treetap.party import config as party_config
from treetap.party.policy import Policy, merged
from treetap.party.setup.membership import check_members
from treetap.protocols.messages import Members, label_holder_opens
from treetap.protocols.prediction import predict_request
from treetap.protocols.registry import PREDICTION, TRAINING, prediction, training
from treetap.strict import read_toml
from treetap.wire.v2 import control_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
OF_PARTIES = [path for path in sorted(EXAMPLES.rglob("*.toml")) if {"name", "state"} <= set(read_toml(path))]
#: A second certificate of the federation, of a process that is no party.
SECOND = ("operator", "app", "coordinator")
UNNAMED: dict[str, Any] = {"people": {"label_holders": [], "peers": []}}


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


@pytest.mark.second_tier(but=2)
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
