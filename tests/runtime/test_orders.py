"""Steps of every protocol and role: out of order they are refused, and every line of their tables is taken.

That the tables are what they should be, their texts say (`test_protocol_texts`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests import protocol_texts
from tests.campaign import step_orders
from tests.campaign.small_jobs import begin
from tests.needs import needs_library_of
from tests.pivodl.jobs import SMALL, SPREAD
from tests.replay import CLOSING, HERE
from tests.serving.served import IDS, ask, serve
from tests.simulator import DEALER, Federation, Message, finished
from tests.splitnn import small_job as small_network
from tests.step_tables import Asked, Line, TableReader, lines_of, table_at, taken
from tests.trainings import jobs_of, oracle, policies
from tests.worlds import PARTIES, World, assert_oracles_model, manifest, spec
from treetap.party.defences.settings import Defences, ReducedLeakage
from treetap.party.growth.label_holder import ALONE
from treetap.party.protocols import PREDICTION, TRAINING
from treetap.party.runtime.step_order import StepTable, id_of
from treetap.protocols.exclusions import Feature
from treetap.protocols.job_spec import params_of
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.protocols.registry import prediction, training
from treetap.wire.frame import name_of
from treetap.wire.v2 import setup_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")

LABEL_HOLDER, B, C = PARTIES
_FIRST_TIER = ("boosting", "forest", "pivodl", "interactive", "eini", "eini-lattice", "masked", "preview of a count")


def _of_tiers(names: Any) -> list[Any]:
    return [pytest.param(name, marks=() if name in _FIRST_TIER else pytest.mark.second_tier) for name in names]


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    "story", _of_tiers([*step_orders.STORIES, *({"splitnn", "network"} - set(step_orders.STORIES))])
)
def test_a_step_out_of_order_is_refused(story: str, tmp_path: Path) -> None:
    """With what is expected; steps that are done are answered as before, and what the job makes is right."""
    needs_library_of("splitnn" if story == "network" else story)
    found = step_orders.conduct(tmp_path, (story,), every=6)
    assert found["failing"] == []
    assert {"UnknownJob", "answered again", "Conflict", "OutOfOrder"} == set(found["kinds"])


@pytest.mark.second_tier
def test_every_role_of_every_protocol_is_asked() -> None:
    """The jobs have all protocols, so that a new one cannot be left out; a dealer has its own (test_dealer.py)."""
    needs_library_of("splitnn")
    asked = [step_orders.table_of(story, party) for story in step_orders.STORIES for party in PARTIES[:2]]
    for name in protocol_texts.NAMES:
        own = protocol_texts.training_tables(name) if name in TRAINING else {}
        own.pop("dealer", None)
        for table in [*own.values(), *(protocol_texts.prediction_tables(name) if name in PREDICTION else {}).values()]:
            assert table in asked, name


@dataclass(frozen=True)
class Play:
    """A training that takes some lines: it is broken off at steps, of a round, before or after they are served."""

    job: setup_pb2.JobSpec
    broken: tuple[tuple[str, str, int | None, bool], ...] = ()
    at_once: bool = False  # besides, and before, without being broken off
    world: World = HERE
    options: dict[str, Any] = field(default_factory=dict)


def _plays(protocol: str) -> Iterator[Play]:
    """Trainings that together take every line of the tables."""
    publishing = tuple(("publish", party, None, False) for party in (B, C))
    if protocol == "splitnn":
        job = spec(small_network.PARAMS)
        epochs = (("train_epoch", B, 2, False), ("store_epoch", LABEL_HOLDER, 2, True))
        yield Play(job, (*epochs, publishing[1], ("publish", LABEL_HOLDER, None, False)))
        early = {"epochs": 9, "learning_rate": 5.0, "early_stopping_rounds": 1, "validation_share": 0.4}
        yield Play(spec(replace(small_network.PARAMS, **early)), publishing[:1], at_once=True)
        return
    jobs, one_role = jobs_of(protocol), training(protocol).one_role
    stumps = jobs.WITHOUT_SPLITS
    # scales of labels outlast the attempt that found them
    params = replace(SMALL, objective="reg:squarederror") if one_role else jobs.PARAMS
    keys: dict[str, Any] = {"obfuscation": "standard"} | ({"key_bits": 512} if one_role else {})
    inside = ("close_tree", B, 2, False) if one_role else ("choose_splits", LABEL_HOLDER, 3, False)
    here = SPREAD if one_role else HERE
    yield Play(spec(params, **keys), (inside, *publishing), world=here)
    stored = ("store_tree", LABEL_HOLDER, stumps.n_estimators, True)
    yield Play(spec(stumps, **keys), (stored,), at_once=True, world=here)
    if one_role:
        yield Play(spec(replace(SMALL, gain_comparison="secure", n_estimators=1), **keys), world=here)
    elif any(line.when == ALONE for line in lines_of(_table(protocol, "label_holder"))):
        own = {"defences": {LABEL_HOLDER: Defences(reduced_leakage=ReducedLeakage(trees=1))}}
        yield Play(spec(stumps, **keys), options=own)
        shared = {"scheme": LATTICE, "sums": "shared", "dealer": DEALER}
        for withheld in (params, stumps):
            yield Play(spec(replace(withheld, instance_spaces="withheld"), **shared), options={"dealer": True})


def _table(protocol: str, role: str) -> StepTable:
    return table_at(f"{TRAINING[protocol]}.{role}".removeprefix("treetap.party."))


def _break_off(federation: Federation, step: str, to: str, round: int | None, served: bool) -> None:
    """Kill the party that a step, of a round, goes to, once, before or after the step."""

    def hook(message: Message) -> None:
        if (message.word, message.to, message.served) != (step, to, served):
            return
        if round in (None, federation.jobs.status("job")[0].round):
            federation.hook = None
            federation.kill(to)

    federation.hook = hook


async def _played(folder: Path, play: Play) -> Federation:
    """The federation after a training that ends with the oracle's model, however often it was broken off."""
    job_policies = policies(play.job)
    federation = Federation(folder, play.world.tables, policies=job_policies, **play.options)
    if play.at_once:
        assert (await federation.train(play.job, "at-once")).state == "finished"
    begun = False
    for step, victim, round, served in play.broken:
        _break_off(federation, step, victim, round, served)
        status = await (federation.resume() if begun else federation.train(play.job))
        assert status.state == "interrupted", status.error
        federation.start(victim)
        begun = True
    status = await (federation.resume() if begun else federation.train(play.job))
    assert (status.state, status.error) == ("finished", "")
    params = params_of(play.job)
    if not hasattr(params, "epochs"):
        if not play.options:
            assert_oracles_model(federation.states, oracle(play.world, params))
    else:
        from tests.splitnn.networks import assert_same_bits, published
        from tests.splitnn.networks import oracle as network_of

        network, _ = network_of(folder, play.world, params)
        assert_same_bits(published(folder, play.world), network.weights())
    return federation


def _steps(federation: Federation) -> dict[tuple[str, str, int], list[Asked]]:
    """The steps that were done, by party, job and attempt."""
    found: defaultdict[tuple[str, str, int], list[Asked]] = defaultdict(list)
    for kind, to, request in federation.conducted:
        if kind == "end" and name_of(request) not in CLOSING:
            found[to, request.job, request.attempt].append(id_of(request))
    return found


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", _of_tiers(TRAINING))
async def test_every_line_of_a_training_is_taken(protocol: str, tmp_path: Path) -> None:
    """Broken off in a tree or epoch, while models are published, with all stored; and no other step is taken."""
    needs_library_of(protocol)
    one_role = training(protocol).one_role
    tables = [_table(protocol, "party")] if one_role else [_table(protocol, "label_holder")]
    tables += [] if one_role else [_table(protocol, "feature_party")]
    lines: list[set[Line]] = [set() for _ in tables]

    for number, play in enumerate(_plays(protocol)):
        federation = await _played(tmp_path / str(number), play)
        for (party, _, _), steps in _steps(federation).items():
            if party == DEALER:  # whose table has no line for a round that is not told
                continue
            role = 0 if one_role or party == LABEL_HOLDER else 1
            aligning = "compare_digests" if party == LABEL_HOLDER else "send_digest"
            lines[role] |= taken(TableReader(tables[role], aligning, resumes=range(9)), steps)
        if one_role and not play.at_once:
            units = {(each["label_scale"], each["base_score"]) for each in map(manifest, federation.states.values())}
            assert len(units) == 1
        await federation.close()
    assert lines == [lines_of(table) for table in tables]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", _of_tiers(PREDICTION))
async def test_every_line_of_a_prediction_is_taken(protocol: str, tmp_path: Path) -> None:
    """A served model with and without requests, then predictions of two blocks, explained and not."""
    needs_library_of(protocol)
    described = prediction(protocol)
    story = "network" if protocol == "splitnn" else protocol
    lines: dict[str, set[Line]] = {name: set() for name in PARTIES}

    federation = begin(tmp_path, story)
    if Feature.SERVE in described.capabilities:
        await serve(federation, protocol=protocol)
        await ask(federation, IDS[0])
        await asyncio.sleep(6)
        for k in (1, 2, 3):  # blocks after the first one may take other steps
            await ask(federation, IDS[k])
    explains = Feature.EXPLAIN in described.capabilities
    explained = {"explain": explains, "attributions": bool(described.sends_attributions)}
    for job, changes in {"plain": {}, "explained": explained}.items():
        finished(await federation.predict(predict_request(protocol, model="job", job=job, block=4, **changes)))
    for (party, job, _), steps in _steps(federation).items():
        own = party == LABEL_HOLDER
        naming = ("take_names" if own else "name_features") if job == "explained" and explains else None
        table = step_orders.table_of(story, party)
        reader = TableReader(table, "compare_digests" if own else "send_digest", naming=naming)
        lines[party] |= taken(reader, steps)
    await federation.close()
    assert lines[LABEL_HOLDER] == _without_look_ups(step_orders.table_of(story, LABEL_HOLDER))
    assert lines[B] | lines[C] == _without_look_ups(step_orders.table_of(story, B))


def _without_look_ups(table: StepTable) -> set[Line]:
    """Those that need blinded ids are taken in tests/serving/test_new_records.py."""
    return {line for line in lines_of(table) if not {line.done, line.step} & {"look_up", "answer_look_ups"}}
