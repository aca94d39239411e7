"""The course of each protocol at the coordinator: tables of the modules that have it as `TRAINING` or `PREDICTION`.

The courses share the steps at the beginning and the end of jobs: alignment, keys, bins, publication.

The coordinator only calls them: the records are aligned party to party (docs/alignment.md).
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster, answered
from treetap.errors import ConfigError, Malformed, ProtocolError, refuse
from treetap.names import MOST_KEYS
from treetap.process.together import together
from treetap.protocols.alignment import Plan as Turns
from treetap.protocols.alignment import turns
from treetap.protocols.job_spec import continued_from, parties_of
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import aligned_apart
from treetap.protocols.registry import prediction_name, training_name
from treetap.wire.metric_history import columns, merged, rows
from treetap.wire.v2 import control_pb2, prediction_pb2, setup_pb2, types_pb2


async def align(roster: Roster, parties: Sequence[str], job: setup_pb2.JobSpec | prediction_pb2.OpenModel) -> None:
    """Align the records of `parties`: the label holder, then the feature parties in the order of the job."""
    if job.alignment == "sorted-ids":
        sending = roster.ask_all(parties[1:], "send_digest")
        await together(sending, roster.ask(parties[0], "compare_digests"))  # the label holder compares
        return
    await take_turns(roster, parties, turns(len(parties), pairwise=aligned_apart(job)))


async def take_turns(
    roster: Roster, parties: Sequence[str], plan: Turns, shown: Callable[[int, int], None] = lambda _, __: None
) -> dict[str, control_pb2.StepResult]:
    """Have the parties take the turns of a plan for one key of their ids after another; returns the first's answers.

    `shown`: takes the number of each turn, and that of all.
    """
    answers: dict[str, control_pb2.StepResult] = {}
    for key in range(MOST_KEYS):
        for number, turn in enumerate(plan):
            shown(number, len(plan))
            names = [parties[place] for place in turn.places]
            results = await roster.ask_all(names, turn.step, round=key, stage=turn.stage)
            if parties[0] in results:
                answers[turn.step] = results[parties[0]]
        agreed = answers.get("agree_ids")
        if agreed is None or not answered(parties[0], agreed, "agreed_ids").another_key:
            break
    return answers


@dataclass(frozen=True)
class Found:
    """The state of a job on the parties' disks: rounds, an alignment that all share, published models.

    Models are published when all rounds are stored, the label holder's last. `model`: that of the label holder, if it
    is published. `history`: the metrics after each stored round.
    """

    rounds: int
    aligned: bool
    published: frozenset[str]
    model: setup_pb2.PublishedModel
    history: list[types_pb2.MetricHistory]


@dataclass(frozen=True)
class Plan:
    """The rounds to do: rounds (trees or epochs) from `first` to `rounds` - 1, unless `stopped` early.

    `own_rounds`: the rounds from 0 that the label holder does alone.
    """

    first: int
    rounds: int
    stopped: bool
    own_rounds: int


async def prepare(roster: Roster, job: setup_pb2.Prepare) -> Found:
    """Have every party load its table; returns the state on the disks, from which the job continues."""
    spec, body = job.spec, setup_pb2.Prepare(peers=roster.peers())
    body.MergeFrom(job)
    results = await roster.ask_all(roster.names, "prepare", body)
    answers = {party: answered(party, results[party], "prepared") for party in parties_of(spec)}
    if all(answer.without_columns for answer in answers.values()):
        raise ConfigError(
            f"no party has a feature: columns of table {spec.table!r} names none at {' and '.join(answers)}; write "
            "columns = [...] there, at one party at least"
        )
    own = answers[spec.aggregator]
    aligned = {answer.aligned_attempt for answer in answers.values() if not answer.published}
    agreed = len(aligned) == 1 and 0 not in aligned
    if not own.published:
        lost = [
            party
            for party, theirs in answers.items()
            if not theirs.published and (theirs.stored_rounds < own.stored_rounds or (own.stored_rounds and not agreed))
        ]
        if lost:
            raise ProtocolError(
                f"{' or '.join(lost)} has lost part of its state of the job: the label holder has {own.stored_rounds} "
                "rounds, and not every party has as many and the same alignment; cancel the job and train again"
            )
    published = frozenset(party for party, answer in answers.items() if answer.published)
    # of PIVODL each party has the metrics of other rounds, and may have stored one more than the first party
    # before the first attempt has stored the base model's rounds, the label holder answers with their metrics
    known = own.stored_rounds if own.stored_rounds or not continued_from(spec) else None
    history = columns(merged(rows(answer.history) for answer in answers.values())[:known])
    return Found(own.stored_rounds, agreed, published, own.model, history)


async def exchange_keys(roster: Roster, spec: setup_pb2.JobSpec, progress: Progress) -> None:
    """The label holder makes the key pair; the feature parties take its public half."""
    progress.phase("keys")
    made, _ = await together(
        roster.ask_all([spec.aggregator], "make_keys", setup_pb2.MakeKeys()),
        roster.ask_all(spec.feature_parties, "take_key", setup_pb2.TakeKey()),
    )
    if KeyKind.of(spec).on_lattice:
        progress.planned(answered(spec.aggregator, made[spec.aggregator], "planned_traffic"))


async def plan_rounds(
    roster: Roster,
    spec: setup_pb2.JobSpec,
    state: Found,
    progress: Progress,
    phase: str = "bin",
    step: str = "bin",
) -> Plan:
    """Have every party do the step before the first round; the label holder answers with the number of rounds.

    Raises:
        Malformed: there are no rounds, or a party says that it has published a model whose rounds are not all stored.
    """
    progress.phase(phase)
    names = [party for party in parties_of(spec) if party not in state.published]
    answers = await roster.ask_all(names, step)
    binned = answered(spec.aggregator, answers[spec.aggregator], "binned")
    refuse(
        (not binned.rounds, f"{spec.aggregator} says that the job has no rounds"),
        (
            state.published and state.rounds < binned.rounds and not binned.stopped,
            f"{' and '.join(sorted(state.published))} cannot have published a model of which the label holder has "
            f"stored {state.rounds} of {binned.rounds} rounds; cancel the job and train again",
        ),
        (
            binned.base_rounds >= binned.rounds or (binned.base_rounds and not continued_from(spec)),
            f"{spec.aggregator} says that {binned.base_rounds} of {binned.rounds} rounds are those of the model from "
            "which the job continues",
        ),
        kind=Malformed,
    )
    return Plan(max(state.rounds, binned.base_rounds), binned.rounds, binned.stopped, binned.own_rounds)


async def publish(roster: Roster, spec: setup_pb2.JobSpec) -> setup_pb2.PublishedModel:
    """Publish the shards as models, the label holder's last: its model means that every party's exists."""
    await roster.ask_all(spec.feature_parties, "publish", setup_pb2.Publish())
    published = await roster.ask(spec.aggregator, "publish", setup_pb2.Publish())
    model: setup_pb2.PublishedModel = answered(spec.aggregator, published, "published_model")
    return model


#: Name of a protocol that trains → its module.
TRAINING: Mapping[str, str] = {
    "boosting": "treetap.coordinator.boosting",
    "forest": "treetap.coordinator.forest",
    "pivodl": "treetap.coordinator.pivodl",
    "splitnn": "treetap.coordinator.splitnn",
}
#: Name of a protocol that predicts → its module.
PREDICTION: Mapping[str, str] = {
    "interactive": "treetap.coordinator.interactive",
    "eini": "treetap.coordinator.eini",
    "eini-lattice": "treetap.coordinator.eini",
    "masked": "treetap.coordinator.masked",
    "splitnn": "treetap.coordinator.splitnn",
}


class TrainingCourse(NamedTuple):
    """The course of a training protocol, once the records are aligned.

    `plan` has the parties prepare their columns (bins) and returns the rounds to do; `train` does them, beginning with
    the steps before the first round (keys).
    """

    plan: Callable[[Roster, setup_pb2.JobSpec, Found, Progress], Awaitable[Plan]]
    train: Callable[[Roster, setup_pb2.JobSpec, Plan, Progress], Awaitable[None]]


class PredictionCourse(NamedTuple):
    """The course of a prediction protocol.

    `begin` has every party open the model, and does all other steps before the first block; it returns what `score`
    takes. That scores the block of a given number, and returns the number of blocks.
    """

    begin: Callable[[Roster, prediction_pb2.OpenModel, Progress], Awaitable[Any]]
    score: Callable[[Roster, prediction_pb2.OpenModel, Any, int, Progress], Awaitable[int]]


def training(spec: setup_pb2.JobSpec) -> TrainingCourse:
    course: TrainingCourse = importlib.import_module(TRAINING[training_name(spec)]).TRAINING
    return course


def prediction(opening: prediction_pb2.OpenModel) -> PredictionCourse:
    course: PredictionCourse = importlib.import_module(PREDICTION[prediction_name(opening)]).PREDICTION
    return course
