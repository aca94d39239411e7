"""What parties send, class by class, and policies that say to whom.

- Declared and real emissions: each protocol sends what it declares, to whom it says, and nothing else.
- The policy is asked for every class that a job has a party send, and for every event that answers a coordinator.

  The jobs are made from the registries: every protocol with every option that changes what it sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.blindness.observed import Observed
from tests.boosting.categories import categorical_world
from tests.growth.evaluated import with_eval_table
from tests.needs import needs_library_of
from tests.pivodl.jobs import SMALL, SPREAD
from tests.replay import HERE, JOB, PARAMS, SUBMISSION, ask, with_word
from tests.runtime.exact_policies import exactly, put_under
from tests.serving.served import CLIENT, IDS, config, serve
from tests.serving.served import ask as ask_as_client
from tests.simulator import COORDINATOR, Federation, failed, finished
from tests.splitnn.jobs import PARAMS as NETWORK
from tests.trainings import fitting, jobs_of, oracle, policies
from tests.trainings import policies as policies_for
from tests.worlds import PARTIES, World, assert_oracles_model, spec, world
from treetap.coordinator.prediction import opening_of
from treetap.errors import DataError, Malformed, Refused
from treetap.party.defences.settings import ColumnPrivacyTable, Defences
from treetap.party.policy import merged
from treetap.party.policy_tables import PLACES
from treetap.protocols.alignment import ALIGNMENTS
from treetap.protocols.exclusions import Feature
from treetap.protocols.job_spec import params_of, parties_of, processes_of, sent_in_training
from treetap.protocols.key_options import LATTICE
from treetap.protocols.messages import Members, MessageRow, Sent, sent_by, to_label_holder
from treetap.protocols.prediction import predict_request, sent_in_prediction
from treetap.protocols.registry import PREDICTION, TRAINING, prediction, training, training_name
from treetap.shares import choice
from treetap.trees.params import BoostingParams
from treetap.wire.disclosure import bytes_by_class, classes_within
from treetap.wire.frame import filled, name_of, type_of
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
async def test_a_training_sends_what_it_declares(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Senders, receivers, contents and classes of a whole job are those that are known at its opening.

    Under a policy that permits these alone nothing is refused: no progress, no account, no farewell.
    """
    job = TRAININGS[name]
    needs_library_of(training_name(job))
    monkeypatch.setattr(choice, "ONE_OF", 1)  # all that is dealt is dealt again
    declared = list(sent_in_training(job, COORDINATOR))
    one_role, here = training(training_name(job)).one_role, fitting(WIDE, params_of(job))
    policies = {name: {"emits": exactly(declared, name)} for name in processes_of(job)}

    tables = {party: here.tables[party] for party in parties_of(job)}
    federation = Watched(tmp_path, tables, policies=policies, dealer=bool(job.dealer))
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
@pytest.mark.parametrize("reasons", [True, False])
async def test_a_served_model_sends_what_it_declares(protocol: str, reasons: bool, tmp_path: Path) -> None:
    """Of a model that is served the file of predictions is not written, and the rounds of requests are reported."""
    federation = Watched(tmp_path, HERE.tables, serve={LABEL_HOLDER: config()})
    assert (await federation.train(JOB)).state == "finished"
    federation.crossed.clear()
    federation.narrow(predict_request(protocol, model="job", serve=True, reasons=reasons))
    await serve(federation, protocol=protocol, reasons=reasons)
    for _ in range(2):  # blocks after the first one may take other steps
        await ask_as_client(federation, *IDS, client=CLIENT, reasons=16 * reasons)
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
            request = with_word("prepare")
            request.setup.prepare.spec.CopyFrom(spec(jobs_of(protocol).PARAMS, alignment=alignment))
            sent = list(sent_in_training(request.setup.prepare.spec, COORDINATOR))
            yield f"{protocol}, {alignment}", (request, sent)
        for protocol in PREDICTION:
            options: dict[str, dict[str, Any]] = {"": {}}
            has = prediction(protocol).capabilities
            if Feature.EXPLAIN in has:
                options["explained"] = {"explain": True}
            if Feature.SERVE in has:
                options["served"] = {"serve": True}
            if Feature.REASONS in has:
                options["served with reasons"] = {"serve": True, "reasons": True}
            if Feature.ATTRIBUTIONS in has:
                options["attributed"] = {"attributions": True}
            if Feature.DEGRADE in has:
                options["without a party"] = {"away_policy": "degrade", "away": [LAST]}
            if Feature.SERVE_DEGRADED in has:
                options["served without a party"] = {"serve": True, "away_policy": "degrade", "away": [LAST]}
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
        put_under(federation, LABEL_HOLDER, {disclosure: [FEATURE, LAST]})
        async with node._opening.setdefault("job", asyncio.Lock()):
            with pytest.raises(Refused, match=f"{LABEL_HOLDER} does not send {disclosure} to coordinator"):
                await anext(node.step(COORDINATOR, with_word(word)))


# ---- Whatever a coordinator asks, a party's policy decides: each rule, broken by a job that would need it


class Rule(NamedTuple):
    """A policy's lines at a party, a job that breaks them, and what the refusal names."""

    party: str
    policy: dict[str, Any]
    named: str
    job: setup_pb2.JobSpec = JOB
    here: World = HERE
    options: dict[str, Any] = {}


_EVALUATED = with_eval_table(world(40, (1, 1, 1), seed=3, fresh=30)).here
_CATEGORIES: dict[str, Any] = {
    "job": spec(BoostingParams(n_estimators=1, max_depth=2, max_bin=8, max_cat_to_onehot=1)),
    "here": categorical_world(),
    "options": {"encode": "categorical"},
}
_NOISED = {FEATURE: Defences(column_privacy=ColumnPrivacyTable(epsilon=500.0, delta=1e-6, trees=2))}
_ON_LATTICE = spec(PARAMS, scheme=LATTICE)
_PIVODL = spec(SMALL, key_bits=512, obfuscation="standard")
_PUBLISHED = spec(replace(SMALL, as_published=True), key_bits=512, obfuscation="standard")
RULES: dict[str, Rule] = {
    "key floor at a feature party": Rule(FEATURE, {"keys": {"min_key_bits": 2048}}, "min_key_bits = 2048"),
    "key floor at the label holder": Rule(LABEL_HOLDER, {"keys": {"min_key_bits": 2048}}, "min_key_bits = 2048"),
    "common records": Rule(LAST, {"columns": {"min_common_records": 1000}}, "min_common_records = 1000"),
    "instance spaces of the owner": Rule(FEATURE, {"columns": {"min_instance_space": 15}}, "min_instance_space = 15"),
    "instance spaces of the label holder": Rule(
        LABEL_HOLDER, {"columns": {"min_instance_space": 15}}, "min_instance_space = 15"
    ),
    "gradients": Rule(LABEL_HOLDER, {"emits": {"CIPHERTEXT": []}}, "emits.CIPHERTEXT = []"),
    "gradients to one": Rule(LABEL_HOLDER, {"emits": {"CIPHERTEXT": [FEATURE]}}, f"CIPHERTEXT to {LAST}"),
    "sums": Rule(FEATURE, {"emits": {"CANDIDATE_SUM": [LAST]}}, f"emits.CANDIDATE_SUM = ['{LAST}']"),
    "children": Rule(FEATURE, {"emits": {"INSTANCE_SPACE": []}}, "emits.INSTANCE_SPACE = []"),
    "digests": Rule(LAST, {"emits": {"BLINDED_ID": []}}, "emits.BLINDED_ID = []"),
    "metrics": Rule(LABEL_HOLDER, {"emits": {"METRIC": []}}, "METRIC to coordinator"),
    "topology": Rule(LABEL_HOLDER, {"emits": {"TOPOLOGY": ["parties"]}}, "TOPOLOGY to coordinator"),
    "directions of constraints": Rule(
        *(FEATURE, {"emits": {"MONOTONE_DIRECTION": []}}, f"MONOTONE_DIRECTION to {LABEL_HOLDER}"),
        options={"constraints": {FEATURE: {"b0": 1}}},
    ),
    "scheme": Rule(LAST, {"keys": {"schemes": ["paillier"]}}, "schemes = [", _ON_LATTICE),
    "secrecy at the label holder": Rule(
        LABEL_HOLDER,
        {"keys": {"min_lattice_bits": 135}},
        "secrecy of a key of which no place was told (134 bits)",
        _ON_LATTICE,
    ),
    "secrecy at a feature party": Rule(
        LAST,
        {"keys": {"min_lattice_bits": 135}},
        "secrecy of a key of which no place was told (134 bits)",
        _ON_LATTICE,
    ),
    "order of splits": Rule(
        *(LABEL_HOLDER, {"labels": {"expansion_order": False}}, "expansion_order = false"),
        spec(replace(PARAMS, grow_policy="lossguide", max_leaves=3), obfuscation="standard"),
    ),
    "withheld spaces": Rule(
        *(FEATURE, {"columns": {"withheld_spaces": False}}, "withheld_spaces = false"),
        spec(replace(PARAMS, instance_spaces="withheld"), scheme=LATTICE),
    ),
    "records that a party lacks": Rule(
        *(FEATURE, {"columns": {"left_join": False}}, "left_join = false"),
        spec(PARAMS, alignment="psi", join="left"),
    ),
    "records to measure": Rule(
        *(LABEL_HOLDER, {"labels": {"min_evaluated_records": 31}}, "min_evaluated_records = 31"),
        *(spec(PARAMS, eval_table="eval"), _EVALUATED),
    ),
    "records to score": Rule(
        *(FEATURE, {"columns": {"min_prediction_records": 31}}, "min_prediction_records = 31"),
        *(spec(PARAMS, eval_table="eval"), _EVALUATED),
    ),
    "categories at their owner": Rule(
        *(
            FEATURE,
            {"columns": {"category_partitions": False}},
            f"does not send {LABEL_HOLDER} the sums over each category",
        ),
        **_CATEGORIES,
    ),
    "categories at the label holder": Rule(
        *(LABEL_HOLDER, {"columns": {"category_partitions": False}}, f"does not partition the categories of {FEATURE}"),
        **_CATEGORIES,
    ),
    "noised sums": Rule(
        LABEL_HOLDER, {"labels": {"noised_sums": False}}, "noised_sums = false", options={"defences": _NOISED}
    ),
    "labels in clear": Rule(LABEL_HOLDER, {"labels": {"label_budget": 2.0}}, "label_budget = 2"),
    "parties that share labels": Rule(
        FEATURE, {"labels": {"min_label_parties": 4}}, "min_label_parties = 4", _PIVODL, SPREAD
    ),
    **{
        f"the paper's steps at {party}": Rule(
            *(party, {"labels": {"pivodl_as_published": False}}, "pivodl_as_published = false", _PUBLISHED, SPREAD)
        )
        for party in PARTIES
    },
    "a seed that all know": Rule(LAST, {"networks": {"reproducible": False}}, "reproducible = false", spec(NETWORK)),
}


@pytest.mark.filterwarnings("ignore:a 512-bit")
@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("name", RULES)
async def test_a_step_that_breaks_a_rule_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    """The job ends, the operator reads whose rule it was; nothing of the class left; a wider policy lets it go on."""
    party, policy, named, job, here, options = RULES[name]
    needs_library_of(training_name(job))
    wide = {name: policies_for(job).get(name, {}) for name in here.tables}
    policies = {**wide, party: merged(wide[party], policy)}
    federation = Federation(tmp_path, here.tables, policies=policies, **options)
    failed(await federation.train(job), "Refused", party, named)
    federation.kill(party)
    federation.policies = wide
    federation.configs[party] = federation.configs[party].under(federation.policy(party))
    federation.start(party)
    finished(await federation.resume())
    if not options.keys() & {"defences", "constraints"} and training_name(job) != "splitnn":
        params: Any = params_of(job)
        assert_oracles_model(federation.states, here.oracle(params) if here.categories else oracle(here, params))


@pytest.mark.filterwarnings("ignore:a 512-bit")
def test_every_key_has_a_rule() -> None:
    """Here, or in a test of predictions, previews, approvals or what is kept: a new key cannot be left out."""
    here = {key for rule in RULES.values() for table in rule.policy.values() for key in table}
    tests = (path for path in Path(__file__).parents[1].rglob("test_*.py") if path != Path(__file__))
    others = "".join(path.read_text(encoding="utf-8") for path in tests)
    assert [key for key in PLACES if key not in here and key not in others] == []


@pytest.mark.filterwarnings("ignore:a 512-bit")
async def test_a_coordinator_that_the_policy_does_not_name_is_not_obeyed(tmp_path: Path) -> None:
    """Accepted coordinators are part of the policy."""
    federation = Federation(tmp_path, HERE.tables, policies={FEATURE: {"people": {"coordinators": ["boss"]}}})
    failed(await federation.train(JOB), f"coordinator is not a coordinator that {FEATURE} obeys")
