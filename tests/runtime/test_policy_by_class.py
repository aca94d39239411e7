"""The policy is asked for every class that a job has a party send, and for every event that answers a coordinator.

The jobs are made from the registries: every protocol with every option that changes what it sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_library_of
from tests.replay import HERE, JOB, SUBMISSION, ask, with_word
from tests.runtime.exact_policies import exactly, put_under
from tests.simulator import COORDINATOR, Federation
from tests.trainings import fitting, jobs_of
from tests.trainings import policies as policies_for
from tests.worlds import PARTIES, spec
from treetap.coordinator.prediction import opening_of
from treetap.errors import DataError, Refused
from treetap.protocols.alignment import ALIGNMENTS
from treetap.protocols.exclusions import Feature
from treetap.protocols.job_spec import params_of, sent_in_training
from treetap.protocols.messages import Sent
from treetap.protocols.prediction import predict_request, sent_in_prediction
from treetap.protocols.registry import PREDICTION, TRAINING, prediction, training
from treetap.wire.disclosure import classes_within
from treetap.wire.frame import filled, type_of
from treetap.wire.v2 import control_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES


def _prepare(protocol: str, alignment: str) -> tuple[control_pb2.StepRequest, list[Sent]]:
    request = with_word("prepare")
    request.setup.prepare.spec.CopyFrom(spec(jobs_of(protocol).PARAMS, alignment=alignment))
    return request, list(sent_in_training(request.setup.prepare.spec, COORDINATOR))


def _open(protocol: str, alignment: str, **options: Any) -> tuple[control_pb2.StepRequest, list[Sent]]:
    request, away = control_pb2.StepRequest(job="job", attempt=1), options.pop("away", [])
    trains = next(name for name in TRAINING if protocol in training(name).predicts)
    job = JOB if trains == "boosting" else spec(jobs_of(trains).PARAMS)
    if away and options.get("serve"):
        job = spec(replace(jobs_of(trains).PARAMS, party_dropout=dict.fromkeys(PARTIES[1:], 0.5)))
    opening = opening_of(predict_request(protocol, model="nothing", **options), job, "", "")
    opening.alignment = alignment
    opening.away.extend(away)
    filled(request, "open_model", opening)
    sends = list(sent_in_prediction(opening, COORDINATOR))
    if opening.attributions:  # the last of the chain sends the values of all, and each feature party must agree
        sends += [Sent(party, LABEL_HOLDER, "attribution_sums", frozenset({"EXPLANATION"})) for party in PARTIES[1:]]
    return request, sends


def _jobs() -> Iterator[tuple[str, tuple[control_pb2.StepRequest, list[Sent]]]]:
    """Openings by protocol and option, each with all that it has the parties send."""
    for alignment in ALIGNMENTS:
        for protocol in TRAINING:
            yield f"{protocol}, {alignment}", _prepare(protocol, alignment)
        for protocol in PREDICTION:
            options: dict[str, dict[str, Any]] = {"": {}}
            has = prediction(protocol).capabilities
            if Feature.EXPLAIN in has:
                options["explained"] = {"explain": True}
            if Feature.SERVE in has:
                options["served"] = {"serve": True}
            if Feature.ATTRIBUTIONS in has:
                options["attributed"] = {"attributions": True}
            if Feature.DEGRADE in has:
                options["without a party"] = {"away_policy": "degrade", "away": [OTHER]}
            if Feature.SERVE_DEGRADED in has:
                options["served without a party"] = {"serve": True, "away_policy": "degrade", "away": [OTHER]}
            for name, option in options.items():
                yield f"{protocol}, {alignment}, {name}", _open(protocol, alignment, **option)


#: Those of networks, which need PyTorch, last.
OPENINGS = dict(sorted(_jobs(), key=lambda job: job[0].startswith("splitnn")))


@pytest.mark.second_tier(but=14)
@pytest.mark.parametrize("name", OPENINGS)
async def test_each_class_to_each_receiver_is_asked_for_at_the_opening(name: str, tmp_path: Path) -> None:
    """With one receiver of one class taken out the opening is refused by both names; with none it is not."""
    request, sends = OPENINGS[name]
    needs_library_of(name.partition(",")[0])

    tables, policies = HERE.tables, {}
    if request.HasField("setup"):
        job = request.setup.prepare.spec
        tables, policies = fitting(HERE, params_of(job)).tables, policies_for(job)
    federation = Federation(tmp_path, tables, policies=policies)
    for party in {sent.sender for sent in sends}:  # those that are away are not asked
        allowed = exactly(sends, party)
        for disclosure, receivers in allowed.items():
            for receiver in receivers:
                others = [other for other in receivers if other != receiver]
                put_under(federation, party, {**allowed, disclosure: others})
                with pytest.raises(Refused, match=f"{party} does not send {disclosure} to {receiver}: its policy"):
                    await ask(federation, party, request)
        assert list((federation.state(party) / "jobs").iterdir()) == []
        put_under(federation, party, allowed)
        if request.HasField("setup"):
            await ask(federation, party, request)
        else:
            with pytest.raises(DataError, match="there is no model 'nothing'"):
                await ask(federation, party, request)


def _classes(*contents: str) -> list[tuple[str, str]]:
    return [(content, name) for content in contents for name in sorted(classes_within(type_of(content)) | {"CONTROL"})]


@pytest.mark.parametrize(("content", "disclosure"), _classes("accounted", "done"))
async def test_accounts_and_farewells_are_asked_for_too(content: str, disclosure: str, tmp_path: Path) -> None:
    """The answers of `account` and `leave` go through the policy, each class of them; the job is left all the same."""
    word = {"accounted": "account", "done": "leave"}[content]

    federation = Federation(tmp_path, HERE.tables)
    await ask(federation, FEATURE, with_word("prepare"))
    put_under(federation, FEATURE, {disclosure: [LABEL_HOLDER]})
    request = with_word(word)
    if word == "leave":
        request.setup.leave.submission = SUBMISSION
    with pytest.raises(Refused, match=f"{FEATURE} does not send {disclosure} to coordinator: its policy"):
        await ask(federation, FEATURE, request)
    assert (federation.node(FEATURE)._sessions == {}) == (word == "leave")
    if word == "leave":
        with pytest.raises(Refused, match=f"{FEATURE} does not send {disclosure} to coordinator: its policy"):
            await ask(federation, FEATURE, with_word(word, job="of-nobody"))


@pytest.mark.parametrize("word", ["prepare", "compare_digests", "leave"])
async def test_progress_is_asked_for_too(word: str, tmp_path: Path) -> None:
    """Of an opening that waits for another, of a step that waits for a peer, and of leaving: no event is sent."""
    # bytes (SIZE) are counted for a job that is open, and of `leave` no more
    classes = classes_within(control_pb2.Progress.DESCRIPTOR) if word == "compare_digests" else {"CONTROL"}

    federation = Federation(tmp_path, HERE.tables)
    for party in federation.configs:
        await ask(federation, party, with_word("prepare"))
    node = federation.node(LABEL_HOLDER)
    for disclosure in sorted(classes):
        put_under(federation, LABEL_HOLDER, {disclosure: [FEATURE, OTHER]})
        async with node._opening.setdefault("job", asyncio.Lock()):
            with pytest.raises(Refused, match=f"{LABEL_HOLDER} does not send {disclosure} to coordinator"):
                await anext(node.step(COORDINATOR, with_word(word)))
