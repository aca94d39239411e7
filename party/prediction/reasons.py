"""Reasons of a served model: the columns that moved a record's score towards the refused class.

A record is scored in several *ways*: as it is, way 0, and once for each column that the model's trees split, with that
column at its reference value (`treetap.tables.references`). Place `record * ways + way` of a block is a record in a
way: to the protocol a record like any other, and the features that a party compares follow from its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from treetap.arrays import Floats
from treetap.errors import ConfigError, DataError, Malformed
from treetap.models.store import REFERENCES
from treetap.party.prediction.applicants import features_of
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.runtime.step_order import StepId, step
from treetap.protocols.messages import LONGEST_NAME
from treetap.wire.v2 import prediction_pb2, serving_pb2

#: Most reasons that a client may ask for.
MOST_REASONS = 16


class NumberedColumns:
    """A party's part in numbering the ways, a phase of one step; the opened model has them from then on."""

    sequence: Sequence[StepId] = [("number_columns", 0, 0)]

    def __init__(self, job: PredictionJob, opened: OpenedModel, columns: Mapping[int, str], others: int = 0) -> None:
        """`columns`: of the features that own splits compare; `others`: at the label holder, the splits of others.

        Raises:
            DataError: the model keeps no reference values.
            Refused: the policy bounds what scores may tell of its columns.
        """
        self._job, self._opened, self._columns, self._others = job, opened, columns, others
        fault = "for reasons records are scored with one column at its reference value, which leaves no bits"
        job.context.policy.check_paths(opened.party, np.zeros(1), fault)
        if REFERENCES not in opened.manifest:
            raise DataError(
                f"model {opened.name} keeps no reference values of its columns, as those of earlier releases: train it "
                "again, or serve it without reasons"
            ).at(opened.party)

    @step()
    async def number_columns(self) -> None:
        """Label holder: hear how many columns each feature party has, and their names if it tells them; number all."""
        job, opened = self._job, self._opened
        recipient, own, outbox = job.opening.recipient, sorted(set(self._columns.values())), job.context.outbox
        first, named = 1, {recipient: own}
        if opened.party == recipient:
            firsts: dict[str, int] = {}
            for party in job.chain:
                told = await job.context.mailbox.only(party, "reason_columns")
                longest = max(map(len, told.names), default=0)
                if told.count > self._others or len(told.names) not in (0, told.count) or longest > LONGEST_NAME:
                    raise Malformed(
                        f"{party} tells {len(told.names)} names, the longest of {longest} characters, of {told.count} "
                        f"columns, and {self._others} splits are not this party's own"
                    )
                firsts[party] = 1 + sum(map(len, named.values()))
                named[party] = list(told.names) or [""] * told.count
            opened.columns = [
                serving_pb2.Reason(party=party, number=number, column=name)
                for party, names in named.items()
                for number, name in enumerate(names, start=1)
            ]
            opened.lacks = {party: opened.alignment.common_with(party).lacks for party in job.chain}
            ways = 1 + len(opened.columns)
            for party, at in firsts.items():
                await outbox.send(party, "record_ways", [prediction_pb2.RecordWays(first=at, ways=ways)])
        else:
            shown = own if job.context.policy.may_emit(recipient, "REASON") else []
            message = prediction_pb2.ReasonColumns(count=len(own), names=shown)
            await outbox.send(recipient, "reason_columns", [message])
            heard = await job.context.mailbox.only(recipient, "record_ways")
            first, ways = heard.first, heard.ways
            if not 1 <= first <= ways - len(own):
                raise Malformed(f"{recipient} says that {len(own)} columns are numbered from {first} on, below {ways}")
        references = self._references()
        replaced = {feature: first + own.index(name) for feature, name in self._columns.items()}
        opened.in_ways = lambda values, places, feature: np.where(
            places % ways == replaced[feature], references[feature], values
        )
        opened.ways, opened.sizes.records = ways, opened.sizes.records * ways

    def _references(self) -> Floats:
        """The reference value of each feature: the policy's, or the training's; NaN where there is none."""
        given, manifest = self._job.context.policy.columns.references, self._opened.manifest
        values = np.array(manifest[REFERENCES], dtype=np.float64)
        cells = {name: given.get(name) for name in manifest["source_columns"]}
        own = features_of(Path("references under [columns] of the policy"), manifest, cells) if given else values
        for feature, name in self._columns.items():
            if name in given:
                values[feature] = own[feature]
        return values


class ServedReasons:
    """The reasons of records at the label holder: what is asked about them, and what follows from the scores."""

    def __init__(
        self, opened: OpenedModel, refused: str, lacking: Mapping[int, dict[str, None]], *, given: bool
    ) -> None:
        """`refused`: a class; empty: the second of two; of numbers the higher ones are refused. `given`: if at all.

        `lacking`: the feature parties that lack a new record, once it was looked up.

        Raises:
            ConfigError: the model has no such class, or several.
        """
        self._opened, self._new, classes = opened, lacking, opened.classes
        if given and classes and refused not in classes and (refused or len(classes) > 2):
            raise ConfigError(
                f"serve.refused = {refused!r}: the reasons of model {opened.name} are about one of its classes, "
                f"{', '.join(classes)}: name it",
                party=opened.party,
            )
        self._refused = classes.index(refused) if refused in classes else len(classes) - 1

    def asked(self, record: int, most: int) -> list[int]:
        """The places of a record as it is and, for `most` reasons, in each way that may tell one."""
        columns, lacking = enumerate(self._opened.columns if most else (), start=1), self._lacking(record)
        ways = [0, *(way for way, column in columns if column.party not in lacking)]
        return [record * self._opened.ways + way for way in ways]

    def give(
        self, record: int, found: Mapping[int, serving_pb2.RecordPrediction], most: int
    ) -> serving_pb2.RecordPrediction:
        """The prediction of a record with its reasons, by those of its places; none of a party of which one failed."""
        first, given = record * self._opened.ways, serving_pb2.RecordPrediction()
        given.CopyFrom(found[first])
        if not most or given.status != serving_pb2.PREDICTED:
            return given
        score, moved, unreasoned = self._towards(given.scores), list[tuple[float, int]](), self._lacking(record)
        for way, column in enumerate(self._opened.columns, start=1):
            other = found.get(first + way)
            if other is None or other.status != serving_pb2.PREDICTED:
                unreasoned[column.party] = None
            elif (less := score - self._towards(other.scores)) > 0:
                moved.append((-less, way))
        ordered = [self._opened.columns[way - 1] for _, way in sorted(moved)]
        given.reasons.extend([column for column in ordered if column.party not in unreasoned][:most])
        given.unreasoned.extend(unreasoned)
        return given

    def _lacking(self, record: int) -> dict[str, None]:
        """The feature parties that lack a record."""
        parts = self._opened.lacks.items()
        told = {party: None for party, lacks in parts if lacks is not None and lacks[record : record + 1].any()}
        return told | self._new.get(record, {})

    def _towards(self, scores: Sequence[float]) -> float:
        """How far a record is on the side of the refused class: of several the lead over the next."""
        if len(scores) == 1:
            return -scores[0] if self._refused == 0 else scores[0]
        return scores[self._refused] - max(score for place, score in enumerate(scores) if place != self._refused)
