"""Declared and real emissions: each protocol sends what it declares, to whom it says, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.blindness.observed import Observed
from tests.needs import needs_library_of
from tests.replay import HERE, JOB
from tests.runtime.exact_policies import exactly, put_under
from tests.serving.served import CLIENT, IDS, config, serve
from tests.serving.served import ask as ask_as_client
from tests.simulator import COORDINATOR, finished
from tests.trainings import fitting, jobs_of, policies
from tests.worlds import PARTIES, world
from treetap.coordinator.prediction import opening_of
from treetap.errors import Malformed
from treetap.protocols.job_spec import params_of, sent_in_training
from treetap.protocols.messages import Members, MessageRow, Sent, sent_by, to_label_holder
from treetap.protocols.prediction import predict_request, sent_in_prediction
from treetap.protocols.registry import PREDICTION, TRAINING, training, training_name
from treetap.wire.disclosure import bytes_by_class
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2, jobs_pb2, prediction_pb2, setup_pb2

LABEL_HOLDER, FEATURE, LAST = PARTIES
#: A world in which every party wins splits in each of the trainings, and some of their children are split again.
WIDE = world(40, (1, 1, 1), seed=25, fresh=6)
#: Protocol that trains, and what is special about the job → the job.
TRAININGS: dict[str, setup_pb2.JobSpec] = {
    f"{protocol}, {case}": job for protocol in TRAINING for case, job in jobs_of(protocol).EMITTING.items()
}
PREDICTIONS: dict[str, dict[str, Any]] = {
    "interactive": {"protocol": "interactive"},
    "interactive, explained": {"protocol": "interactive", "form": "per-tree", "explain": True},
    "eini": {"protocol": "eini"},
    "eini, explained": {"protocol": "eini", "explain": True, "attributions": True},
    "eini-lattice": {"protocol": "eini-lattice", "explain": True},
    "masked": {"protocol": "masked", "recipient": FEATURE},
    "splitnn": {"protocol": "splitnn"},
}
#: Protocol that predicts → the job that trains a model for it, where that is not `JOB`.
TRAINED = {"masked": "pivodl, gains announced", "splitnn": "splitnn, two feature parties"}
Real = dict[tuple[str, str, str], set[str]]


class Watched(Observed):
    """A federation that notes who sends which content to whom, with the classes that it carries."""

    @property
    def real(self) -> Real:
        """Classes by sender, receiver and content of the messages so far, without progress and `leave`."""
        found: Real = {}
        for sender, to, step, message in self.crossed:
            content = step
            if isinstance(message, control_pb2.StepEvent):
                if not message.HasField("result") or step == "leave":
                    continue
                content = name_of(message.result)
            found.setdefault((sender, to, content), set()).update(bytes_by_class(message))
        return found

    def narrow(self, request: jobs_pb2.PredictRequest, job: setup_pb2.JobSpec = JOB) -> None:
        """Have the policies permit what this prediction is declared to send, and nothing else.

        Besides: names of features, explanations of every feature party, which the last sends, and answers to clients.
        """
        opening = opening_of(request, job, "", "")
        declared = list(sent_in_prediction(opening, COORDINATOR))
        for party in self.configs:
            emits = exactly(declared, party)
            if party != LABEL_HOLDER and request.explain:
                emits |= {"FEATURE_NAME": [LABEL_HOLDER], "TOPOLOGY": [LABEL_HOLDER]}
            if party != LABEL_HOLDER and request.attributions:
                emits |= {"EXPLANATION": [LABEL_HOLDER]}
            if party == LABEL_HOLDER and request.serve:
                emits |= {name: [*emits[name], "clients"] for name in ("CONTROL", "PREDICTION")}
            put_under(self, party, emits)

    def opening(self) -> prediction_pb2.OpenModel:
        """The opening that the coordinator sent last."""
        sent = [request for _, _, request in self.conducted if name_of(request) == "open_model"]
        return sent[-1].prediction.open_model


def _assert_declared(
    declared: Iterable[Sent], real: Real, perhaps: dict[str, set[str]] | None = None, *, drawn: bool = False
) -> None:
    """Senders, receivers and contents are those declared; each class of a content goes to one receiver at least.

    A result has bytes (SIZE) once the party has sent some, and figures of serving (USAGE) once a client was answered.
    `perhaps`: content → classes that it carries in this job and need not. Not every receiver gets every class: an owner
    is not sent the records of its own splits. `drawn`: senders and receivers are drawn, so that some of those declared
    have no turn.
    """
    expected = {
        (sent.sender, sent.receiver, sent.content): set(sent.classes) for sent in declared if not sent.by_tables
    }
    assert set(real) <= set(expected)
    assert {key[2] for key in real} == {key[2] for key in expected}
    assert drawn or set(real) == set(expected)
    by_content: dict[str, tuple[set[str], set[str]]] = {}
    for key, classes in expected.items():
        allowed = classes | (perhaps or {}).get(key[2], set())
        sent = real.get(key, set())
        assert sent <= allowed, key
        seen, named = by_content.setdefault(key[2], (set(), set()))
        seen.update(sent - {"SIZE", "USAGE"})
        named.update(allowed - {"SIZE", "USAGE"})
    assert {content: seen for content, (seen, _) in by_content.items()} == {
        content: named for content, (_, named) in by_content.items()
    }


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("name", TRAININGS)
async def test_a_training_sends_what_it_declares(name: str, tmp_path: Path) -> None:
    """Senders, receivers, contents and classes of a whole job are those that are known at its opening.

    Under a policy that permits these alone nothing is refused: no progress, no account, no farewell.
    """
    job = TRAININGS[name]
    needs_library_of(training_name(job))
    members = [job.aggregator, *job.feature_parties]
    declared = list(sent_in_training(job, COORDINATOR))
    one_role, here = training(training_name(job)).one_role, fitting(WIDE, params_of(job))
    policies = {party: {"emits": exactly(declared, party)} for party in members}

    federation = Watched(tmp_path, {party: here.tables[party] for party in members}, policies=policies)
    finished(await federation.train(job))
    _assert_declared(declared, federation.real, drawn=one_role)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("name", PREDICTIONS)
async def test_a_prediction_sends_what_it_declares(name: str, tmp_path: Path) -> None:
    """So do predictions; names of features are sent or withheld, metrics are sent where there are labels."""
    protocol = PREDICTIONS[name]["protocol"]
    needs_library_of(protocol)
    job = TRAININGS[TRAINED[protocol]] if protocol in TRAINED else JOB
    here = fitting(WIDE, params_of(job)) if protocol in TRAINED else HERE

    federation = Watched(tmp_path, here.tables, policies=policies(job))
    assert (await federation.train(job)).state == "finished"
    federation.crossed.clear()
    request = predict_request(model="job", **PREDICTIONS[name])
    federation.narrow(request, job)
    finished(await federation.predict(request))
    declared = sent_in_prediction(federation.opening(), COORDINATOR)
    _assert_declared(declared, federation.real, {"split_names": {"FEATURE_NAME", "TOPOLOGY"}})


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", ["eini", "interactive"])
async def test_a_served_model_sends_what_it_declares(protocol: str, tmp_path: Path) -> None:
    """Of a model that is served the file of predictions is not written, and the rounds of requests are reported."""
    federation = Watched(tmp_path, HERE.tables, serve={LABEL_HOLDER: config()})
    assert (await federation.train(JOB)).state == "finished"
    federation.crossed.clear()
    federation.narrow(predict_request(protocol, model="job", serve=True))
    await serve(federation, protocol=protocol)
    for _ in range(2):  # blocks after the first one may take other steps
        await ask_as_client(federation, *IDS, client=CLIENT)
    await asyncio.sleep(1)  # clients are answered before the coordinator is
    _assert_declared(sent_in_prediction(federation.opening(), COORDINATOR), federation.real)


def test_every_protocol_is_watched_here() -> None:
    """A protocol that is registered has a job above that shows what it sends."""
    assert {name.partition(",")[0] for name in TRAININGS} == set(TRAINING)
    assert {asked["protocol"] for asked in PREDICTIONS.values()} == set(PREDICTION)


def test_a_content_that_no_frame_has_cannot_be_declared() -> None:
    """A slip in a name is noticed by whoever asks for the classes."""
    with pytest.raises(Malformed, match="are called 'leaf_sumz'"):
        list(sent_by([MessageRow("leaf_sumz", to_label_holder)], Members(COORDINATOR, LABEL_HOLDER, (FEATURE,))))
