"""What a party's state backs about one of its models, as facts that name their source; the annex made of them.

A fact is what it is about, its value, and the source: PLACE#KEY, a file below the state folder, or beside it, and a key
in it; `ledger.jsonl#N` is line N, from 0. Words of the release itself, such as what a class tells, have the release as
their place. A heading without a fact says that this software does not record it: no sentence stands in for one.

Nothing of an id, a label, a cell or a key is a fact: of each file those entries are taken that have none, by name.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from treetap.commands.leakage import trees_of
from treetap.commands.model.view import classes_of, describe, find
from treetap.commands.options import reading
from treetap.errors import BadInput, DataError, Malformed, visible
from treetap.models.durable import read_json
from treetap.models.store import LEAKAGE, MANIFEST, read_job, read_leakage, read_manifest
from treetap.party.approvals.decisions import flat
from treetap.party.approvals.ledger import APPROVALS, approvals_of
from treetap.party.approvals.overview import UNITS, spent
from treetap.party.config import PartyConfig, read
from treetap.party.runtime.job_store import DECISIONS, TRANSCRIPTS
from treetap.party.runtime.ledger import LEDGER, Charge, Kind, ledger_of, utc
from treetap.party.serving.decisions import decisions_of
from treetap.version import package_version
from treetap.wire.transcript import files_of, summarise

Json = Mapping[str, Any]
#: The folder's file of an experiment with its runs, that of an intruder test, and the experiment's own file.
RESULTS, INTRUDER, MADE_WITH = "results.json", "intruder.json", "made-with.json"
_NOT_DONE = "Not done."
#: Figures of a verdict, which name no record, label or cell.
_OF_VERDICT = ("before", "after", "low", "high")
#: Figures of an intruder test.
_OF_TEST = ("model", "records", "members", "shadow_models", "seconds")


class Fact(NamedTuple):
    """What it is about, its value, and the place of both."""

    what: str
    value: str
    source: str


@dataclass(frozen=True)
class Heading:
    """A heading and its facts; `lacking`: said where there is none."""

    title: str
    facts: list[Fact]
    lacking: str = "Not recorded by this software: the provider's to write."


@dataclass(frozen=True)
class Paper:
    """A document of the folder. `file`: its name without an ending; `about`: a sentence on what it answers."""

    file: str
    title: str
    about: str
    headings: list[Heading]


def written(value: object) -> str:
    """A value as a fact has it."""
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ", ".join(map(visible, value)) or "none"
    return visible(value) if isinstance(value, str) else "none" if value is None else json.dumps(value, allow_nan=False)


@dataclass(frozen=True)
class Kept:
    """What a party's state folder has about one model.

    Attributes:
        file: the party's configuration file.
        name: of the model, which is that of its job.
        described: the model without thresholds and weights (`describe`).
        job: the submission and the digests of its training.
        charges: of the whole ledger, in its order.
        experiment: the folder whose attacks are told; None: none was named.
        policy, release: the places of what the policy file, or this release, says.
    """

    file: Path
    party: PartyConfig
    folder: Path
    name: str
    described: Json
    manifest: Json
    job: Json
    charges: list[Charge]
    experiment: Path | None
    policy: str
    release: str

    @classmethod
    def of(cls, file: Path, model: str, experiment: Path | None) -> Kept:
        """Read it. Raises `BadInput` for a model that is not there, and `DataError` for a damaged file."""
        party, folder, release = read(file), find(model, file), f"treetap {package_version()}"
        policy = release if party.policy_file is None else party.policy_file.name
        with reading(party.state):
            charges = ledger_of(party.state).charges()
            described, manifest, job = describe(folder), read_manifest(folder), read_job(folder)
        name = str(described["model"])
        return cls(file, party, folder, name, described, manifest, job, charges, experiment, policy, release)

    def of_manifest(self, *keys: str, within: str = "") -> list[Fact]:
        """Entries of the manifest, or of a table in it, that are there, by these keys or, without one, all."""
        content, before = (self.manifest[within], f"{within}.") if within else (self.manifest, "")
        place = f"models/{self.name}/{MANIFEST}"
        return [
            Fact(key.replace("_", " "), written(content[key]), f"{place}#{before}{key}")
            for key in keys or content
            if key in content
        ]

    def of_config(self, *keys: str) -> list[Fact]:
        """Entries of the party's own file, or their defaults; a dot is before those of a table, which it may lack."""
        tables = {key.partition(".")[0] for key in keys}
        content = flat(self.party.model_dump(mode="json", include=tables))
        given = flat(self.party.model_dump(mode="json", include=tables, exclude_unset=True))
        return [
            Fact(
                key.replace("_", " "),
                written(content[key]),
                f"{self.file.name if key in given else self.release}#{key}",
            )
            for key in keys
            if key in content
        ]

    def of_ledger(self, *kinds: str, job: str | None = None) -> list[Fact]:
        """The charges of these kinds, or of all, for the training's job or another one; an empty name stands for any.

        Details, which may name columns and files, are left out.
        """
        job = self.name if job is None else job
        return [
            Fact(
                f"{charge.kind}, {charge.occasion.job}, attempt {charge.occasion.attempt}, {charge.at}",
                f"{charge.amount:g}, with {', '.join(charge.partners)}",
                f"{LEDGER}#{number}",
            )
            for number, charge in enumerate(self.charges)
            if job in ("", charge.occasion.job) and (not kinds or charge.kind in kinds)
        ]

    def approvals(self) -> Iterator[Fact]:
        """Who signed and decided about the training and jobs that name the model; no reason in a person's words."""
        for asked in approvals_of(self.party).listed():
            if asked.digest == self.manifest["job_digest"] or asked.document.get("model") == self.name:
                place, of = f"{APPROVALS}/{asked.digest}.json#", f"{asked.kind} {asked.job}"
                yield Fact(f"{of}: asked for by", asked.coordinator, f"{place}coordinator")
                yield Fact(f"{of}: signed by operator", asked.operator or "none", f"{place}operator")
                yield from (
                    Fact(
                        f"{of}: {one.decision}",
                        f"by {one.approver} ({one.way}), from {utc(one.since)} to {utc(one.until)}",
                        f"{place}verdicts.{number}",
                    )
                    for number, one in enumerate(asked.verdicts)
                )
                yield from (
                    Fact(f"{of}: in words", sentence, f"{place}words.{number}")
                    for number, sentence in enumerate(asked.words)
                )

    def messages(self, kind: str) -> list[Fact]:
        """Messages of the training, received or sent, by partner and class, as the transcript has them."""
        totals, way = Counter[tuple[str, str, str]](), "from" if kind == "received" else "to"
        for row in (row for row in self._transcript().get("rows", ()) if row["kind"] == kind):
            totals.update({(row["peer"], row["class"], unit): row[unit] for unit in ("messages", "bytes")})
        return [
            Fact(
                f"{way} {peer}: {name}",
                f"{totals[peer, name, 'messages']} messages, {totals[peer, name, 'bytes']} bytes of this class",
                f"{TRANSCRIPTS}/{self.name}#{kind}.{peer}.{name}",
            )
            for peer, name in sorted({key[:2] for key in totals})
        ]

    def signed(self) -> list[Fact]:
        """The transcript's own signatures."""
        summary, place = self._transcript(), f"{TRANSCRIPTS}/{self.name}"
        return [
            *([Fact("records", written(summary["records"]), f"{place}#records")] if summary else []),
            *([Fact("signatures", summary["signed"]["says"], f"{place}#signed.says")] if summary else []),
            Fact("what the policy has it keep now", self.party.policy.people.record, f"{self.policy}#people.record"),
        ]

    def _transcript(self) -> dict[str, Any]:
        path = self.party.state / TRANSCRIPTS / self.name
        with reading(path):
            if not path.is_dir() or not files_of(path):
                return {}
            try:
                return summarise(path, None if self.party.tls is None else self.party.tls.ca)
            except Malformed as fault:
                raise DataError(f"{fault}: bring a back-up of it back, or move {path} away") from None

    def limits(self) -> Iterator[Fact]:
        """The policy as it is now: keys that the file sets, and those that have a value without it; no address."""
        policy = self.party.policy
        given = flat(policy.model_dump(mode="json", exclude_unset=True))
        for key, value in flat(policy.model_dump(mode="json")).items():
            if not key.startswith("people.addresses") and (key in given or value not in (None, [], {})):
                yield Fact(key, written(value), f"{self.policy if key in given else self.release}#{key}")
        for row in spent(self.party, self.charges):
            most = "no limit" if row["most"] is None else f"of {row['most']:.10g}"
            said = f"{row['spent']:.10g} {UNITS[row['limit']]}, {most}"
            yield Fact(f"spent: {row['limit']}, {row['of']}", said, LEDGER)

    def leakage(self) -> Iterator[Fact]:
        """What released sets of records say about the labels on which the model was trained, by party."""
        trees = trees_of(read_leakage(self.folder), self.folder)
        for name, last in trees[-1].parties.items() if trees else ():
            bound = max(tree.parties[name].bound_nats for tree in trees if name in tree.parties)
            share = f"{100 * last.excess_share:.1f} % of the labels' entropy beyond chance, all sets together"
            yield Fact(f"told {name}", f"{share}; at most {bound:.4f} nats by one set", f"models/{self.name}/{LEAKAGE}")

    def answers(self) -> list[Fact]:
        """Records that clients of the served model asked about, by client and outcome, as far as the log keeps them."""
        lines = decisions_of(self.party.state) if (self.party.state / DECISIONS).is_dir() else ()
        counts = Counter((line["client"], line["status"]) for line in lines if line["model"] == self.name)
        return [
            Fact(f"{client}: {status}", str(counts[client, status]), DECISIONS) for client, status in sorted(counts)
        ]

    def attacked(self, name: str) -> Iterator[Fact]:
        """What attacks learned in the named experiment, by figures alone: `RESULTS` of its own parties, or `INTRUDER`.

        Raises:
            BadInput: the folder has no results of attacks, or other ones than this release writes.
        """
        if (folder := self.experiment) is None:
            return
        files = [path for at in (RESULTS, INTRUDER, f"*/{INTRUDER}") for path in sorted(folder.glob(at))]
        if not files:
            raise BadInput(
                f"--experiment {folder}: has neither {RESULTS} nor {INTRUDER}: name the folder that treetap experiment "
                "wrote; treetap audit --model FOLDER --table FILE makes an intruder test of a run of it"
            )
        try:
            named = [path for path in files if path.name == name]
            for path in named:
                document, place = read_json(path), f"{path.relative_to(folder).as_posix()}#"
                keys = _OF_TEST if name == INTRUDER else ()
                yield from (Fact(key.replace("_", " "), written(document[key]), f"{place}{key}") for key in keys)
                runs = {f"runs.{at}.": run for at, run in enumerate(document.get("runs", ()))} or {"": document}
                yield from (
                    _verdict(row, f"{place}{within}verdicts.{number}")
                    for within, run in runs.items()
                    for number, row in enumerate(run.get("verdicts", ()))
                )
            if named and (made := folder / MADE_WITH).is_file():
                own = {f"job.{key}": value for key, value in self.manifest.get("params", {}).items()}
                yield from (
                    Fact(
                        f"it differs from this training in {key.removeprefix('job.')}",
                        f"{written(value)}, of this model {written(own[key])}",
                        f"{MADE_WITH}#experiment.{key}",
                    )
                    for key, value in read_json(made)["experiment"].items()
                    if key in own and own[key] != value
                )
        except (AttributeError, KeyError, TypeError) as fault:
            raise BadInput(f"--experiment {folder}: is not what this release writes ({fault!r}): run it anew") from None


def _verdict(row: Json, place: str) -> Fact:
    """What an attack learned, in the word and the figures of its verdict."""
    figures = [f"{key} {row[key]:.4g}" for key in _OF_VERDICT if row.get(key) is not None]
    said = row["word"], row.get("measure"), *figures
    return Fact(f"{row['party']}, {row['learned']} of {row['of']}", ", ".join(filter(None, said)), place)


def annex(kept: Kept) -> Paper:
    """What was sent to whom, by class and bytes; limits, approvals, and an intruder test."""
    tells = [
        Fact(row["class"], row["learns"], f"{kept.release}#{kept.described['protocol']}")
        for row in classes_of(kept.described["protocol"])
    ]
    return Paper(
        "data-protection-annex",
        f"Data-protection annex: model {kept.name} of {kept.party.name}",
        "What this party's own state says about the training: of its partners, what reached this party and no more.",
        [
            Heading("Purposes and legal basis", []),
            Heading(
                "Who took part",
                [
                    *kept.of_manifest(
                        "party", "role", "label_holder", "feature_parties", "aggregator", "parties", "protocol"
                    ),
                    *kept.of_ledger(Kind.TRAINING, Kind.RECORDS),
                    *kept.of_config("insecure"),
                ],
            ),
            Heading("What each class that this protocol's messages may have tells", tells),
            Heading(
                "Sent in the training",
                kept.messages("sent"),
                "No message that was sent is in a transcript at this party.",
            ),
            Heading(
                "Received in the training",
                kept.messages("received"),
                "No message that was received is in a transcript at this party.",
            ),
            Heading("The transcript behind these figures", kept.signed()),
            Heading(
                "What sets of records told of the labels", list(kept.leakage()), "No account of labels at this party."
            ),
            Heading("Answers of the served model", kept.answers(), "No decision log at this party."),
            Heading("Charges of the training in the ledger", kept.of_ledger()),
            Heading("Limits of the policy, as they are now", list(kept.limits())),
            Heading("Approvals", list(kept.approvals()), "No decision of people about it is kept at this party."),
            Heading("Attacks in an experiment, another training", list(kept.attacked(RESULTS)), _NOT_DONE),
            Heading("Motivated intruder test, of an experiment", list(kept.attacked(INTRUDER)), _NOT_DONE),
            Heading("Retention", kept.of_config("serve.decision_days")),
        ],
    )
