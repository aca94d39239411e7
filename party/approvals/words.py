"""A job in plain words, as one party's people read it before they approve it.

The sentences are computed from the job's document, the rows of its messages with their disclosure classes
(`treetap.protocols`), what reveals.proto says of a class, and the limits of this party's policy and file. None of them
is of one protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treetap.errors import quoted, visible
from treetap.party.approvals.decisions import Asked, Kind, flat
from treetap.party.config import PartyConfig
from treetap.protocols.job_spec import PUBLISHED, privacy_of
from treetap.protocols.messages import Members, MessageRow, classes_of
from treetap.protocols.registry import prediction, training
from treetap.tables.normalised import in_words
from treetap.trees.params import ADDITIVE
from treetap.wire.disclosure import CLASSES

#: Before each of the three sentences that come first; each item of a list, and of a list in it; a line of settings.
FIRST, ITEM, BOUND, SETTING = "• ", "– ", "  – ", "    "
#: Protocol of a training → what it tells others of → what an audit of it measured, and on which table, each without a
#: defence, and what there is to say beside it: benchmarks/measured/columns.md and audits.md have the tables.
MEASURED: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("boosting", "columns"): (
        "the label holder read 53 % of the cells, to the range that each is in (breast cancer, twenty trees)",
    ),
    ("boosting", "labels"): (
        "a feature party named 97 % of the labels (breast cancer, ten trees)",
        "Without its training that audit named 92 % of the labels.",
    ),
    ("pivodl", "columns and labels"): (
        "others read up to 37 % of the cells, to the range that each is in (breast cancer)",
    ),
    ("splitnn", "columns"): (
        "the label holder named four columns nearly without error (bank marketing, credit default)",
    ),
    ("splitnn", "labels"): ("a feature party with forty known labels named 98 % of the others (Fashion-MNIST)",),
}
#: Fields of a document that differ in any two jobs.
_OWN_TO_JOB = frozenset({"job", "submission", "prediction", "base_submission", "replaced_submission"})
#: Most fields whose change is shown.
_MOST_CHANGES = 6
#: Most characters of a text of somebody else's in a sentence.
LONGEST = 64
#: Kind of a class that its receiver cannot read, or that only runs the job → what introduces it.
_BESIDE = {"sealed": "sealed", "plain": "to run the job"}


@dataclass(frozen=True)
class Job:
    """A job that a party's policy lets in.

    Attributes:
        rows: of all messages that its parties send.
        base: the model from which a training goes on; empty: from none.
        earlier: the job of the same kind and first party that this party's people approved last; None: there is none.
    """

    asked: Asked
    members: Members
    rows: Sequence[MessageRow]
    base: str = ""
    earlier: Asked | None = None


def words_of(job: Job, config: PartyConfig) -> tuple[str, ...]:
    """Lines of at most one number: first what goes out, what an audit measured and what is new, each behind `FIRST`.

    Then what there is to add to these, what is asked and by whom, what this party sends, what others learn at most,
    what bounds it.
    """
    me, coordinator = config.name, job.members.coordinator
    others = [name for name in job.members.processes if name != me]
    added = _change(job), _measured(job, config)
    sentences = [f"{FIRST}{said}" for said in (_amount(job, config), *(first for first, *_ in reversed(added)))]
    sentences += [*(line for _, *more in added for line in more), _asks(job), *_purpose(job, me)]
    for names, sent in _grouped(others, lambda other: _sent(job, config, me, other)):
        sentences += [f"You send {names}{sent[0]}", *sent[1:]]
        if sent[0] == ":":  # it can read some of that
            about = _about(job, me)
            sentences.append(f"{names} will learn about your {about} at most that, and what follows from it.")
    for names, sent in _grouped(others, lambda other: _sent(job, None, other, me)):
        sentences += [f"{names} will send you{sent[0]}", *sent[1:]]
    told = [name for name in _classes(job, config, me, coordinator) if _is_open(name) or name == "METRIC"]
    if told:
        items = [line for name in told for line in _told(job, config, name)]
        sentences += [f"You tell coordinator {coordinator}:", *items]
    return (*sentences, *_of_dealer(job), *_of_alignment(job, config), *_of_scores(job, config), *_limits(job, config))


def _grouped(others: Sequence[str], says: Callable[[str], list[str]]) -> list[tuple[str, tuple[str, ...]]]:
    """The parties of which the same is said, and what."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for other in others:
        groups.setdefault(tuple(says(other)), []).append(other)
    return [(" and ".join(names), said) for said, names in groups.items()]


def _amount(job: Job, config: PartyConfig) -> str:
    """What partners can read of this party's, in the number of columns where it is known before a table is read."""
    me, kind, document = config.name, job.asked.kind, job.asked.document
    table, first = shown(document["table"]), job.members.aggregator
    own = config.table(document["table"])
    columns = _counted(len(own.columns), "column") if own is not None and own.columns else "columns"
    if kind == "align":
        which = "how many" if document["answer"] == "count" else "which"
        others = " and ".join(other for other in job.members.parties if other != me)
        return f"{others} will know {which} records of table {table} are common."
    if kind != "train" and first != me:
        return f"{first} will get scores of table {table}: your {columns} count."
    readers = [
        other for other in job.members.parties if other != me and any(map(_is_open, _classes(job, config, me, other)))
    ]
    if not readers:
        return "No partner receives anything of your table that it can read."
    of = "labels" if _about(job, me) == "labels" else f"{columns}{' and labels' * (_about(job, me) != 'columns')}"
    makes = (
        "the screening needs" if document.get("screen") else "the training needs" if kind == "train" else "scores need"
    )
    return f"{' and '.join(readers)} will receive what {makes} of your {of} in table {table}."


def _measured(job: Job, config: PartyConfig) -> list[str]:
    """The figures of an audit of such a training, on a table that is named."""
    protocol = job.asked.document.get("protocol", "")
    screening = bool(job.asked.document.get("screen"))
    if job.asked.kind != "train" or screening or (made := MEASURED.get((protocol, _about(job, config.name)))) is None:
        return ["No audit of such a job was measured: treetap audit measures yours, from the transcript that you keep."]
    first, *more = made
    defended = ["Your file names defences, which that job had not."] if config.defences.model_fields_set else []
    said = f"In an audit of such a job without a defence {first}; yours may tell more or less."
    return [said, *more, *defended]


def _change(job: Job) -> list[str]:
    """How the document differs from that of the job that was approved last: a sentence, and the settings."""
    if job.earlier is None:
        return [f"You have approved no job of this kind for {job.members.aggregator} before."]
    before, now = flat(job.earlier.document), flat(job.asked.document)
    changes = [
        f"{SETTING}{visible(key.removeprefix('parameters.')[:LONGEST])} = {_value(now.get(key))}"
        f"  # was {_value(before.get(key))}"
        for key in dict.fromkeys((*now, *before))
        if key not in _OWN_TO_JOB and now.get(key) != before.get(key)
    ]
    last = f"job {job.earlier.job}, which you approved last of this kind for {job.members.aggregator}"
    if not changes:
        return [f"It is as {last}, in all that it asks for."]
    more = [f"{SETTING}# and {rest} more"] if (rest := len(changes) - _MOST_CHANGES) > 0 else []
    return [f"It differs from {last}, in the settings below.", *changes[:_MOST_CHANGES], *more]


def _asks(job: Job) -> str:
    asked = job.asked
    if asked.operator:
        return f"Operator {asked.operator} has signed job {asked.job}; coordinator {asked.coordinator} conducts it."
    return f"Coordinator {asked.coordinator} asks for job {asked.job}, which no operator has signed."


def _purpose(job: Job, me: str) -> list[str]:
    """What is to be done, on which table, with whom, and how much it makes."""
    document, first = job.asked.document, job.members.aggregator
    with_whom = ", ".join(name for name in job.members.parties if name != first)
    who, table = ("You want" if first == me else f"{first} wants"), f"table {shown(document['table'])}"
    kind = job.asked.kind
    if kind == "align":
        which = "how many" if document["answer"] == "count" else "which"
        return [f"{who} to know {which} records of {table} are common with {with_whom}: a preview."]
    protocol = document["protocol"]
    if kind != "train":
        does = "to serve clients the scores of" if kind == "serve" else "to score"
        by = f"by model {shown(document['model'])} ({protocol}: {prediction(protocol).summary})"
        return [f"{who} {does} records of {table} {by} with {with_whom}."]
    more = f", going on from model {shown(job.base)}" if job.base else ""
    if document.get("replaces"):
        more += f", in the place of model {shown(document['replaces'])}, of which every party then deletes its part"
    if document.get("eval_table"):
        more += f", and to evaluate it on table {shown(document['eval_table'])}"
    word = privacy_of(document["parameters"].get("instance_spaces", ""), document.get("sums", ""))
    how = protocol if word == PUBLISHED else f"{protocol}, privacy {quoted(word)}"
    does = "to screen columns by" if document.get("screen") else "to train"
    what, *sizes = _size(document)
    return [f"{who} {does} {what} ({how}) on {table} with {with_whom}{more}.", *(ITEM + size for size in sizes)]


def _size(document: Mapping[str, Any]) -> list[str]:
    """What a training makes, and how much."""
    parameters = document["parameters"]
    if document.get("screen"):
        return ["one round of sums over the bins of each column, which makes no model"]
    if not training(document["protocol"]).grows_trees:
        return ["a network", f"for {_counted(parameters['epochs'], 'epoch')}"]
    rounds = f"in {_counted(parameters['n_estimators'], 'round')}"
    if parameters.get("model") == ADDITIVE:
        return ["an additive model", rounds]
    return ["trees", rounds, f"to depth {parameters['max_depth']}"]


def _least(config: PartyConfig, kind: Kind) -> int:
    """Fewest common records of a job of this kind, by the policy."""
    columns = config.policy.columns
    return columns.min_common_records if kind in ("train", "align") else columns.min_prediction_records


def _classes(job: Job, config: PartyConfig | None, sender: str, receiver: str) -> list[str]:
    """The classes that may go from one member to another, in the order of reveals.proto, without CONTROL.

    `config`: the sender's, whose policy bounds what goes at most; None: another party's, which is not known.
    """
    names: set[str] = set()
    for row in job.rows:
        if (sender, receiver) in row.route(job.members):
            names |= classes_of(row.content)
    if config is not None:
        names = {name for name in names if config.policy.may_emit(receiver, name)}
        own = config.table(job.asked.document["table"])
        names -= set() if own is None else own.unsent
    return [name for name in CLASSES if name in names and name != "CONTROL"]


def _is_open(name: str) -> bool:
    """True of a class that is readable information about records."""
    return CLASSES[name].kind == "open"


def _sent(job: Job, config: PartyConfig | None, sender: str, receiver: str) -> list[str]:
    """What goes from one party to another, if anything can be read, and lines.

    They are in words what the receiver can read, by name what it cannot.
    """
    names = _classes(job, config, sender, receiver)
    items = [line for name in names if _is_open(name) for line in _told(job, config, name)]
    beside = [
        f"{ITEM}{introduced}: {', '.join(listed)}"
        for kind, introduced in _BESIDE.items()
        if (listed := [name.lower().replace("_", " ") for name in names if CLASSES[name].kind == kind])
    ]
    return [":" if items else f" nothing that can be read{':' if beside else '.'}", *items, *beside]


def _told(job: Job, config: PartyConfig | None, name: str) -> list[str]:
    """The content of a class, and below it the bounds that this party's file and policy put on it."""
    return [ITEM + CLASSES[name].tells, *(BOUND + it for it in ([] if config is None else _bounds(job, config, name)))]


def _bounds(job: Job, config: PartyConfig, name: str) -> list[str]:
    """The bounds of one class at this party."""
    defences, policy, parameters = config.defences, config.policy, job.asked.document.get("parameters", {})
    bounds = []
    if name == "CANDIDATE_SUM":
        least = defences.min_cell_records
        bounds.append(f"over groups of at least {least} records" if least else "over groups of any size, also of one")
        if parameters.get("instance_spaces") == "withheld":
            bounds.append("groups that you cannot check")
        if (noise := defences.column_privacy) is not None:
            bounds.append(f"with noise, for a record's bin in one column: ε of {noise.epsilon:g}")
            bounds.append(f"δ of it {noise.delta:g}, given the sets of records that go left at your splits")
    if name in ("INSTANCE_SPACE", "SPLIT_DIRECTION") and job.asked.kind == "train":
        bounds.append(f"sets of at least {policy.columns.min_instance_space}")
        if job.asked.document.get("eval_table"):
            bounds.append("of the table for evaluation of any size")
        if policy.labels.max_leakage is not None and "labels" in _about(job, config.name):
            bounds.append(f"each telling at most {policy.labels.max_leakage:g} nats of your labels")
    if name in ("EMBEDDING", "EMBEDDING_GRADIENT"):
        own = {"sensitivity": defences.sensitivity, "DP-SGD": defences.dp_sgd, "gradient": defences.gradient}
        bounds.append(f"defended by {' and '.join(key for key, value in own.items() if value) or 'nothing'}")
    if name == "METRIC":
        bounds.append(f"of at least {policy.labels.min_evaluated_records} records")
    return bounds


def _about(job: Job, me: str) -> str:
    """What others learn about: labels of a label holder, columns of a feature party, both where all may have both."""
    if job.asked.kind == "train" and training(job.asked.document["protocol"]).one_role:
        return "columns and labels"
    return "labels" if job.asked.kind == "train" and me == job.members.aggregator else "columns"


def _of_dealer(job: Job) -> list[str]:
    """What a dealer of shared sums must not be, which its certificate alone cannot show."""
    if not (dealer := job.members.dealer):
        return []
    return [
        f"{dealer} deals the randomness of shared sums: with {job.members.aggregator} it could open all sums, with "
        "another party the labels' sums. Ask whose it is, and that this organisation does not hold the authority's key."
    ]


def _of_alignment(job: Job, config: PartyConfig) -> list[str]:
    """What each party learns of ids, where blinded ones are compared, and how this party writes its own."""
    if not any("BLINDED_ID" in classes_of(row.content) for row in job.rows):
        return []
    first, own = job.members.aggregator, config.table(job.asked.document["table"])
    if job.asked.document.get("answer") == "count":
        said = ["No party learns which of its own records are common."]
    elif not job.members.pairwise:
        said = ["Every party learns which of its own records all parties have."]
    elif first == config.name:
        said = ["You learn which of your records each other party has, and it which of its own you have."]
    else:
        said = [
            f"{first} learns which of its records you have, and you which of your own it has; no other party does.",
            f"Records of {first} that you lack count too: whether somebody is in your table goes into the score.",
        ]
    if own is not None and own.rules:
        said += ["Ids are compared as your table says, and every table must say so:", SETTING + in_words(own.rules)]
    if own is not None and own.key_places:
        said.append(
            f"Your table has {len(own.id_keys)} keys: both learn by which a record matches; any of them can be guessed."
        )
    return said


def _of_scores(job: Job, config: PartyConfig) -> list[str]:
    """The receivers of scores, and what else a prediction writes."""
    kind, document = job.asked.kind, job.asked.document
    if kind not in ("predict", "serve"):
        return []
    receiver = "You get" if job.members.aggregator == config.name else f"{job.members.aggregator} gets"
    sentences = [f"{receiver} the scores."]
    if kind == "serve" and config.serve is not None and job.members.aggregator == config.name:
        sentences.append(f"So do clients that ask: {', '.join(config.serve.clients)}, until the job is cancelled.")
    elif kind == "serve":
        sentences.append("So do its clients, until the job is cancelled.")
    if document.get("look_up"):
        sentences.append("Of ids that the label holder's table lacks it learns which of them the other parties have.")
    if document.get("reasons"):
        sentences.append(
            "Records are scored further times, each with one column at its reference value, for the reasons of scores."
        )
    asked = [name for name in ("explain", "attributions", "evaluate") if document.get(name)]
    if asked:
        sentences.append(f"Also asked for: {', '.join(asked)}.")
    return sentences


def _limits(job: Job, config: PartyConfig) -> list[str]:
    """The least numbers of records, and budgets, that the policy has for such a job."""
    policy = config.policy
    common = "common to each pair" if job.members.pairwise else "common"
    limits = [f"At least {_least(config, job.asked.kind)} records must be {common}."]
    noised = config.defences.column_privacy is not None
    budgets = {"labels": policy.labels.label_budget, "columns": policy.columns.column_budget if noised else None}
    limits += [f"Your budget for {of} is an ε of {it:g} in all." for of, it in budgets.items() if it is not None]
    if noised and job.asked.kind == "train":
        limits.append("The ε of your noise is of one attempt: each further one adds as much.")
    return limits


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _value(value: object) -> str:
    """A value of a document, text as `shown`."""
    return str(value) if isinstance(value, int | float) else "nothing" if value is None else shown(value)


def shown(text: object) -> str:
    """A text of somebody else's, quoted, cut, on one line that controls no terminal."""
    plain = str(text)
    return quoted(visible(plain[:LONGEST]) + (" …" if len(plain) > LONGEST else ""))
