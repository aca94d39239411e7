"""Suggestions from a measured frontier: of this table, or of the nearest one, with the effects of each setting there.

Frontiers are the one that an audit was given, and the project's own, which are installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from treetap.attacks.advice import networks
from treetap.attacks.advice.names import (
    APART,
    CELLS,
    JOB,
    STRICTNESS,
    WRITTEN,
    Advice,
    Defence,
    Effect,
    Guessed,
    Measure,
    Parameter,
    ReadCells,
    Source,
    Suggestion,
    Whose,
    Withheld,
    job_lines,
    lines_of,
    settings_of,
)
from treetap.attacks.verdict import WORDS, Compared, Word
from treetap.errors import BadInput
from treetap.privacy.frontiers import FrontierDocument, MeasuredPoint, load_frontier
from treetap.protocols.registry import training
from treetap.trees.params import ADDITIVE

# The frontiers that advice is from: the one that an audit was given, and the project's own, which are installed.


def shipped(protocol: str) -> list[FrontierDocument]:
    """The project's frontiers of public tables for a protocol; `python benchmarks/measured_frontiers.py` makes them."""
    folder = resources.files("treetap.attacks.advice") / "frontiers"
    files = sorted((it for it in folder.iterdir() if it.name.endswith(f"-{protocol}.json")), key=lambda it: it.name)
    return [FrontierDocument.model_validate_json(it.read_bytes()) for it in files]


def given(path: Path, protocol: str, data_digest: str | None) -> tuple[Whose, FrontierDocument]:
    """The frontier that an audit was given, and whether it is of the audited table: by the digest of the content.

    Raises:
        BadInput: it cannot be read, its defences were measured with another protocol, or nothing in it says what they
            take away.
    """
    document = load_frontier(path)
    if document.protocol != protocol:
        raise BadInput(
            f"{path}: was measured with protocol {document.protocol!r}, but the job's is {protocol!r}, where defences "
            "have other effects: run treetap frontier with the job's protocol, or leave the frontier out"
        )
    if document.undefended is None:
        raise BadInput(
            f"{path}: lacks the point without a defence, to which the others compare: make it with none = true"
        )
    return "this table" if data_digest == document.data_digest else "given", document


@dataclass(frozen=True)
class AdvisedJob:
    """A job whose attacks were measured.

    `guessed`: what the attacked party that the training tells most can guess of the labels, by measure; none without
    scores. `word`: the worst verdict on labels, None without one. `params`: the parameters of the model, all of them.
    `defences`: the label holder's table [defences], None where it is not known. `data_digest`: of the table.
    """

    protocol: str
    label_holder: str
    feature_parties: Sequence[str]
    classes: int | None
    guessed: Mapping[Measure, Guessed]
    word: Word | None
    params: Mapping[str, Any] = field(default_factory=dict)
    defences: Mapping[str, Any] | None = None
    data_digest: str | None = None

    def stricter(self, defence: Defence, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings as they would be written, if one of them is stricter than what the job has; empty otherwise.

        A table by feature party has a value for each party, and never a looser one than the job's.
        """
        if defence == CELLS:  # the audit is not told what feature parties have
            return dict(settings)
        if defence == JOB and "model" in settings:
            # how many rounds it needs is another question
            return {"model": ADDITIVE} if self.params.get("max_depth", 0) > 1 else {}
        if defence == JOB:
            return {
                key: stricter
                for key, value in settings.items()
                if (stricter := self._parameter(key, value)) is not None
            }
        has, (name, switches) = self.defences or {}, WRITTEN[defence]
        # two tables that a file may not have together: nothing to write beside the one that is there
        asked = {name, *switches}
        if any(one in asked and has.get(other) for one, other in (APART, APART[::-1])):
            return {}
        key, smaller = STRICTNESS[name]
        now = (has.get(name) or {}).get(key)
        if now is not None and not (settings[key] < now if smaller else settings[key] > now):
            return {}
        return dict(settings)

    def _parameter(self, key: str, value: Any) -> Any:
        """The value of a parameter to write, None if the job's is as strict. Of numbers the smaller is the stricter."""
        now = self.params.get(key)
        if not isinstance(value, Mapping):
            return value if now is None or value < now else None
        least, have = max(value.values()), now or {}
        if all(have.get(name, 0.0) >= least for name in self.feature_parties):
            return None
        return {name: max(least, have.get(name, 0.0)) for name in self.feature_parties}


#: Measure of a frontier → the section of the report that has the same attacks.
_SECTIONS: Mapping[Measure, tuple[str, ...]] = {"accuracy": ("attacks", "network"), "AUC": ("known", "network")}


def told(compared: Sequence[Compared]) -> tuple[dict[Measure, Guessed], Word | None]:
    """Guesses of labels by the measures of frontiers, at the party that learns most; and the worst word.

    `compared`: of all attackers on labels.
    """
    guessed: dict[Measure, Guessed] = {}
    for measure, sections in _SECTIONS.items():
        of = [
            Guessed(before=it.before, after=it.after)
            for it in compared
            if it.measure == measure and it.details in sections
        ]
        if of:
            guessed[measure] = max(of, key=lambda it: it.after - it.before)
    return guessed, max((it.word for it in compared), key=WORDS.index, default=None)


#: The least share of what the training tells, of labels or of columns, that is taken away by what helps; the share
#: from which prices decide.
LEAST, MOST_OF_IT = 0.25, 0.5
#: Shares taken away within so much of each other are equal.
EQUAL = 0.05
#: The least that a measured training adds to what is guessed if shares of it are to say something.
LEAK = 0.02
#: The least share of cells read beyond the floor if shares of it are to say something.
CELLS_READ = 0.05
#: Words of a verdict with which there is little to lower.
FEW: tuple[Word, ...] = ("nothing found", "little")
#: A table is like another one if the share of what was left to guess that its training tells is at most so many times
#: as large or as small.
NEAR = 2.0
_DEFENCES: dict[str, Defence] = {name: name for name in get_args(Defence)}


def advise(job: AdvisedJob, given: tuple[Whose, FrontierDocument] | None) -> Advice:
    """The advice for a job. `given`: a frontier of its protocol and whose table it is of, beside the project's own."""
    fields: dict[str, Any] = {"guessed": None, "source": None, "withheld": None}
    fields |= {"unlike": None, "suggestions": [], "parameters": []}
    fields["defences"] = None if job.defences is None else [name for name, value in job.defences.items() if value]
    if job.protocol == "pivodl":
        return Advice(**fields | {"parameters": parameters(job.params)})
    if not training(job.protocol).grows_trees:
        return Advice(**fields | _of_network(job))
    sources = [pair for pair in _at_hand(job, given) if pair[0] is not None]
    source, withheld = _nearest(job, sources)
    # the frontier that the audit was given is neither of this table nor near: the reader is told that it is left out
    if given is not None and (source is None or source[0].digest != given[1].data_digest):
        fields["unlike"] = None if withheld == "little to lower" else given[1].table
    measure: Measure = "AUC" if "AUC" in job.guessed else "accuracy"
    fields["guessed"] = job.guessed.get(measure if source is None else source[0].measure)
    if source is None:
        return Advice(**fields | {"withheld": withheld})
    return Advice(**fields | {"source": source[0], "suggestions": _suggestions(job, *source)})


def _of_network(job: AdvisedJob) -> dict[str, Any]:
    """The fields of an advice by the measured network that is nearest, by its ratio of what the log tells."""
    if job.word in FEW:
        return {"withheld": "little to lower"}
    if job.classes is None or not (mine := next(iter(job.guessed.values()), None)):
        return {"withheld": "nothing scored"}
    like = [(_ratio(it.share, mine.share), it) for it in networks.tables() if it.classes == job.classes]
    near = min(like, key=lambda pair: pair[0], default=None)
    if near is None or near[0] > NEAR:
        return {"guessed": mine, "withheld": "no table is near"}
    advice = networks.of_network(near[1], job.label_holder, job.feature_parties, job.defences)
    return {"guessed": mine, "network": advice}


def _ratio(one: float, other: float) -> float:
    """How many times as large the larger share is; infinite if one is of nothing."""
    low, high = sorted((one, other))
    return high / low if low > 0 else float("inf")


Sourced = tuple[Source, FrontierDocument]


def _at_hand(job: AdvisedJob, given: tuple[Whose, FrontierDocument] | None) -> list[Sourced]:
    """The frontiers that say what defences take away; one of the very table is known by its digest."""
    frontiers: list[tuple[Whose, FrontierDocument]] = [
        *([] if given is None else [given]),
        *(("this table" if it.data_digest == job.data_digest else "project", it) for it in shipped(job.protocol)),
    ]
    return [(source, document) for whose, document in frontiers if (source := _source(whose, document)) is not None]


def _source(whose: Whose, document: FrontierDocument) -> Source | None:
    """A frontier's table and its measures without a defence; None where it lacks them."""
    without = document.undefended
    if without is None or without.added.mean is None or document.before.mean is None:
        return None
    return Source(
        table=document.table,
        whose=whose,
        digest=document.data_digest,
        records=document.records["train"],
        classes=document.classes,
        trees=document.job["n_estimators"],
        max_depth=document.job["max_depth"],
        seeds=len(document.seeds),
        measure=document.measure,
        guessed=Guessed(before=document.before.mean, after=document.before.mean + without.added.mean),
        auc=without.auc.mean,
        alone=document.alone.auc.mean,
        cells=_read(without),
    )


def _read(point: MeasuredPoint) -> ReadCells | None:
    """The cells read at a point; None where this was not measured."""
    it = point.cells
    if it is None or it.read.mean is None or it.left_sets.mean is None:
        return None
    return ReadCells(read=it.read.mean, left_sets=it.left_sets.mean, explained=it.explained.mean)


def _nearest(job: AdvisedJob, sources: Sequence[Sourced]) -> tuple[Sourced | None, Withheld | None]:
    """The frontier of this table, else the one of as many classes whose training tells as much of what was left."""
    if job.word in FEW:
        return None, "little to lower"
    if here := [source for source in sources if source[0].whose == "this table"]:
        return here[0], None
    if job.classes is None or not job.guessed:
        return None, "nothing scored"

    # effects of defences depend on how much there is to lower: a table is like another by its leak, not by its size
    def ratio(source: Sourced) -> float:
        mine = job.guessed.get(source[0].measure)
        return _ratio(source[0].guessed.share, 0.0 if mine is None else mine.share)

    like = [source for source in sources if source[0].classes == job.classes and ratio(source) <= NEAR]
    return (min(like, key=ratio), None) if like else (None, "no table is near")


def _suggestions(job: AdvisedJob, source: Source, document: FrontierDocument) -> list[Suggestion]:
    """Points of the frontier that are stricter than what the job has, those that help first."""
    # The effect of each point that can be written, against the point without a defence; yet without lines.
    before, every = source.guessed.before, []
    added = source.guessed.after - before
    for point in document.points:
        defence, left = _DEFENCES.get(point.defence), point.added
        if defence is None or left.mean is None:
            continue
        effect = Effect(
            guessed=before + left.mean,
            guessed_sd=left.sd,
            auc=point.auc.mean,
            auc_sd=point.auc.sd,
            cells=_read(point),
        )
        taken = 1 - left.mean / added if added >= LEAK else None
        price = None if source.auc is None or effect.auc is None else source.auc - effect.auc
        every.append(
            Suggestion(
                defence=defence,
                settings=settings_of(point.settings),
                helps=False,
                taken=taken,
                taken_cells=_taken_cells(source.cells, effect.cells),
                price=price,
                effect=effect,
                lines=[],
            )
        )
    suggested = []
    for it in every:
        # what the job has already is not suggested, but still beats what costs more
        if written := job.stricter(it.defence, it.settings):
            helps = _most(it) >= LEAST and not any(_beats(other, it) for other in every)
            lines = lines_of(it.defence, written, job.label_holder, job.feature_parties)
            suggested.append(it.model_copy(update={"helps": helps, "lines": lines}))
    return sorted(suggested, key=_rank)


def _taken_cells(before: ReadCells | None, left: ReadCells | None) -> float | None:
    """The share of the cells read beyond the floor that is taken away; None where little was, or nothing measured."""
    if before is None or left is None or before.read - before.left_sets < CELLS_READ:
        return None
    # left sets tell as much whatever hides sums: what is read at their floor has nothing left to take away
    return min(1.0, (before.read - left.read) / (before.read - before.left_sets))


def _most(it: Suggestion) -> float:
    """The larger share that is taken away, of labels or of columns."""
    return max(it.taken or 0.0, it.taken_cells or 0.0)


def _beats(other: Suggestion, it: Suggestion) -> bool:
    """True if the other does the same and takes as much away, of labels and of columns, for less.

    Any defence does what settings of the job do; repairs of a model do the same where they are of the same noise.
    """
    if other.defence in (JOB, it.defence) or (it.defence != JOB and other.settings != it.settings):
        return False
    if it.taken is None or it.price is None or other.taken is None or other.price is None:
        return False
    cheaper = other.price < it.price or (it.defence == JOB and other.price <= it.price)
    no_less = it.taken_cells is None or (other.taken_cells is not None and other.taken_cells >= it.taken_cells)
    return other.taken >= it.taken and no_less and cheaper


def _rank(it: Suggestion) -> tuple[bool, bool, float, float]:
    """The order of suggestions: those that help first, and of these first what takes away most of the leak, the lowest
    price first; then the largest share. Prices within a hundredth are equal: seeds differ by as much.
    """
    taken, price = _most(it), 1.0 if it.price is None else max(0.0, it.price)
    cheap = it.helps and taken >= MOST_OF_IT
    return not it.helps, not cheap, round(price, 2) if cheap else 0.0, -taken


#: The noise that was measured, and the fewest records of a sum that is opened.
_NOISE, _THRESHOLD = {"epsilon": 8.0, "delta": 1e-5, "clip": 2.0}, 20


def parameters(has: Mapping[str, Any]) -> list[Parameter]:
    """The parameters that are stricter than those of a job; `has`: all of the job's."""
    announced = has.get("gain_comparison", "announce") == "announce"
    advised = []
    epsilon = has.get("epsilon")
    if epsilon is None or epsilon > _NOISE["epsilon"]:
        advised.append(_noise(has, announced))
    if announced:
        tells = (
            'With "secure" no gain is announced, so that gain inversion has no equation. Same model, hence no price in '
            "AUC; it costs time and traffic."
        )
        advised.append(Parameter(name="gain_comparison", tells=tells, lines=[job_lines({"gain_comparison": "secure"})]))
    if (least := has.get("instance_threshold", 0)) < _THRESHOLD:
        tells = (
            "No sum over fewer labelled records of a party is opened on either side of a candidate, so that sums stand "
            f"for more records than the {least} of this job. Not measured: neither the effect on the attacks here nor "
            "the price."
        )
        line = job_lines({"instance_threshold": _THRESHOLD})
        advised.append(Parameter(name="instance_threshold", tells=tells, lines=[line]))
    return advised


def _noise(has: Mapping[str, Any], announced: bool) -> Parameter:
    """The noise that was measured; of its parameters those alone that are stricter than the job's."""
    written = {key: value for key, value in _NOISE.items() if (now := has.get(key)) is None or value < now}
    tells = (
        "Noise on the leaf weights that a party receives for its own splits. On credit_default (4 parties, 5 trees, "
        "400 draws of the noise at ε 8, δ 1e-5, clip 2) the AUC of the label guess went from 0.70 to 0.505–0.512 on "
        "average; a single job lies about 0.06 around that. Price: the model's AUC on held-out records fell from 0.768 "
        "to 0.730."
    )
    if announced:
        tells += " Announced gains undo the noise: write the next line too."
    measured = ", measured on credit_default"
    return Parameter(name=", ".join(written), tells=tells, on=measured, lines=[job_lines(written)])
