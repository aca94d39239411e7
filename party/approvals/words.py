"""A job in plain words, as one party's people read it before they approve it.

The sentences are computed from the job's document, the rows of its messages with their disclosure classes
(`treetap.protocols`), what reveals.proto says of a class, and the limits of this party's policy and file. None of them
is of one protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from party.approvals.decisions import Asked
from party.config import PartyConfig
from treetap.names import quoted, visible
from treetap.protocols.messages import Members, MessageRow, classes_of
from treetap.protocols.registry import prediction, training
from treetap.wire.disclosure import CLASSES

#: Most characters of a text of somebody else's in a sentence.
LONGEST = 64
#: Kinds of classes in the order in which they are named, and what introduces each.
_KINDS = {"open": "readable", "sealed": "unreadable without a key or the other shares", "plain": "to run the job"}


@dataclass(frozen=True)
class Job:
    """A job that a party's policy lets in.

    Attributes:
        rows: of all messages that its parties send.
    """

    asked: Asked
    members: Members
    rows: Sequence[MessageRow]


def words_of(job: Job, config: PartyConfig) -> tuple[str, ...]:
    """The sentences: what is asked and by whom, what this party sends, what others learn at most, what bounds it."""
    me, document = config.name, job.asked.document
    others = [name for name in job.members.parties if name != me]
    sentences = [_asks(job), _purpose(job, me)]
    for other in others:
        sent = _classes(job, config, me, other)
        readable = [name for name in sent if CLASSES[name].kind == "open"]
        if sent:
            sentences.append(f"You send {other}: {_listed(sent, config, document)}.")
        about = "labels" if me == job.members.aggregator and not _shares_labels(job) else "columns"
        about = "columns and labels" if _shares_labels(job) else about
        learns = "; ".join(_told(name, config, document) for name in readable) or "nothing that it can read"
        sentences.append(f"{other} will learn about your {about} at most: {learns}, and what follows from these.")
        sentences.append(f"{other} sends you: {_listed(_classes(job, None, other, me), None, document) or 'nothing'}.")
    told = _classes(job, config, me, job.members.coordinator)
    if shown := [name for name in told if CLASSES[name].kind != "plain" or name in ("METRIC", "USAGE")]:
        sentences.append(f"The coordinator {job.members.coordinator} gets: {_listed(shown, config, document)}.")
    sentences += _of_scores(job, config)
    return (*sentences, *_limits(job, config))


def _asks(job: Job) -> str:
    asked = job.asked
    if asked.operator:
        return f"Operator {asked.operator} has signed job {asked.job}; coordinator {asked.coordinator} conducts it."
    return f"Coordinator {asked.coordinator} asks for job {asked.job}, which no operator has signed."


def _purpose(job: Job, me: str) -> str:
    """The sentence of what is to be done, on which table, with whom."""
    document, first = job.asked.document, job.members.aggregator
    with_whom = ", ".join(name for name in job.members.parties if name != first)
    who, table = ("You want" if first == me else f"{first} wants"), f"table {shown(document['table'])}"
    kind = job.asked.kind
    if kind == "align":
        answer = shown(document["answer"])
        return f"{who} to know of {table} which records are common with {with_whom}, as a preview: {answer}."
    protocol = document["protocol"]
    if kind != "train":
        does = "to serve clients the scores of" if kind == "serve" else "to score"
        by = f"by model {shown(document['model'])} ({protocol}: {prediction(protocol).summary})"
        return f"{who} {does} records of {table} {by} with {with_whom}."
    parameters = document["parameters"]
    if training(protocol).grows_trees:
        amount = f"{parameters['n_estimators']} rounds of trees to depth {parameters['max_depth']}"
    else:
        amount = f"a network for {parameters['epochs']} epochs"
    more = f", going on from model {shown(document['base_model'])}" if document["base_model"] else ""
    return f"{who} to train {amount} ({protocol}) on {table} with {with_whom}{more}."


def _classes(job: Job, config: PartyConfig | None, sender: str, receiver: str) -> list[str]:
    """The classes that may go from one member to another, the readable ones first.

    `config`: the sender's, whose policy bounds what goes at most; None: another party's, which is not known.
    """
    names: set[str] = set()
    for row in job.rows:
        if (sender, receiver) in row.route(job.members):
            names |= classes_of(row.content)
    order = list(_KINDS)
    if config is not None:
        names = {name for name in names if config.policy.may_emit(receiver, name)}
    return sorted(names - {"CONTROL"}, key=lambda name: (order.index(CLASSES[name].kind), list(CLASSES).index(name)))


def _listed(names: Iterable[str], config: PartyConfig | None, document: Mapping[str, Any]) -> str:
    """Classes in words, grouped by their kind."""
    parts = []
    for kind, introduced in _KINDS.items():
        if told := [_told(name, config, document) for name in names if CLASSES[name].kind == kind]:
            parts.append(f"{introduced}: {'; '.join(told)}")
    return ". ".join(part[0].upper() + part[1:] if number else part for number, part in enumerate(parts))


def _told(name: str, config: PartyConfig | None, document: Mapping[str, Any]) -> str:
    """What a class tells, with the bounds that this party's file and policy put on it."""
    bounds = [] if config is None else _bounds(name, config, document)
    return CLASSES[name].tells + (f" ({'; '.join(bounds)})" if bounds else "")


def _bounds(name: str, config: PartyConfig, document: Mapping[str, Any]) -> list[str]:
    """The bounds of one class at this party."""
    defences, policy, parameters = config.defences, config.policy, document.get("parameters", {})
    bounds = []
    if name == "CANDIDATE_SUM":
        least = defences.min_cell_records
        size = f"of at least {least} records" if least else "of any size, also of one record"
        withheld = parameters.get("instance_spaces") == "withheld"
        bounds.append(f"over groups that you cannot check, {size}" if withheld else f"over groups {size}")
        if (noise := defences.column_privacy) is not None:
            bounds.append(f"with noise, ε = {noise.epsilon:g} and δ = {noise.delta:g} for a record's bin in one column")
        if (share := policy.max_column_leakage) is not None:
            bounds.append(f"until {100 * share:g} % of your cells may be known")
    if name in ("INSTANCE_SPACE", "SPLIT_DIRECTION"):
        bounds.append(f"of at least {policy.min_instance_space} records of a node")
        if policy.max_leakage is not None:
            bounds.append(f"each telling at most {policy.max_leakage:g} nats of your labels")
    if name in ("EMBEDDING", "EMBEDDING_GRADIENT"):
        own = {"sensitivity": defences.sensitivity, "dp_sgd": defences.dp_sgd, "gradient": defences.gradient}
        bounds.append(f"defended by {', '.join(key for key, value in own.items() if value) or 'nothing'}")
    if name == "METRIC":
        bounds.append(f"over at least {policy.min_evaluated_records} records")
    return bounds


def _shares_labels(job: Job) -> bool:
    """True if every party of a training may have labels."""
    return job.asked.kind == "train" and training(job.asked.document["protocol"]).one_role


def _of_scores(job: Job, config: PartyConfig) -> list[str]:
    """Who gets scores, and what else a prediction writes."""
    kind, document = job.asked.kind, job.asked.document
    if kind not in ("predict", "serve"):
        return []
    receiver = "You get" if job.members.aggregator == config.name else f"{job.members.aggregator} gets"
    sentences = [f"{receiver} the scores."]
    if kind == "serve" and config.serve is not None and job.members.aggregator == config.name:
        sentences.append(f"So do clients that ask: {', '.join(config.serve.clients)}, until the job is cancelled.")
    elif kind == "serve":
        sentences.append("So do its clients, until the job is cancelled.")
    asked = [name for name in ("explain", "attributions", "evaluate") if document.get(name)]
    if asked:
        sentences.append(f"Also asked for: {', '.join(asked)}.")
    return sentences


def _limits(job: Job, config: PartyConfig) -> list[str]:
    """The least numbers of records, and budgets, that the policy has for such a job."""
    policy = config.policy
    least = policy.min_common_records if job.asked.kind in ("train", "align") else policy.min_prediction_records
    limits = [f"Fewer than {least} common records end the job."]
    budgets = {"label_budget": policy.label_budget, "column_budget": policy.column_budget}
    limits += [f"Your {name} is ε = {value:g} in all." for name, value in budgets.items() if value is not None]
    return limits


def shown(text: object) -> str:
    """A text of somebody else's, quoted, cut, on one line that controls no terminal."""
    plain = str(text)
    return quoted(visible(plain[:LONGEST]) + (" …" if len(plain) > LONGEST else ""))
