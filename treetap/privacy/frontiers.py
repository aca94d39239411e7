"""Measured frontiers: what a defence leaves to attackers of labels and of columns, against its cost in accuracy.

`treetap frontier` writes one as JSON; whoever advises on defences reads it with `load_frontier`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from treetap.errors import BadInput
from treetap.strict import Strict

#: Version of the document; raised when an older treetap could not read what is written.
VERSION: Final = 2


class Measured(Strict):
    """Mean over the seeds, None if undefined, as an AUC can be; standard deviation of a sample, None for one seed."""

    mean: float | None
    sd: float | None = None


class MeasuredCells(Strict):
    """Shares of a feature party's cells (record, column) that the label holder placed in their bins.

    `read`: by all that it read, links found by itself. `left_sets`: by the left sets of won splits alone, a floor.
    `given`: with all links given, a bound.
    """

    read: Measured
    left_sets: Measured
    given: Measured


class MeasuredPoint(Strict):
    """A defence with its settings.

    `defence`: "none", "id_lmid", "reduced_leakage", "label_dp", "label_dp + refit", "grafting", "grafting + refit";
    "min_cell_records", of every feature party; or "job", no defence, whose `settings` are parameters of the job that
    differ. `settings`: keys as in a party's table `[defences]`, as `{"xi": 0.5, "counts": "shown"}`.
    `auc`, `accuracy`: of the held-out rows. `v_measure`: by attack, in each seed that of the feature party where it is
    largest; `parties`: by party and attack. `cells`: in each seed of the feature party of which most was read, None
    where this was not measured; `cells_of`: by party.
    """

    defence: str
    settings: dict[str, Any]
    auc: Measured
    accuracy: Measured
    v_measure: dict[str, Measured]
    parties: dict[str, dict[str, Measured]]
    cells: MeasuredCells | None
    cells_of: dict[str, MeasuredCells]
    seeds: list[int]


class FrontierDocument(Strict):
    """The document that `treetap frontier` writes.

    `table`: the file's name; `data_digest`: SHA-256 of its content. `job`: the parameters of the model. `attacks`:
    names of `treetap attack`, "cl" being the reference without a training. `says`: what a reader has to know, as
    sentences.
    """

    version: Literal[2]
    table: str
    data_digest: str
    protocol: str
    trainer: Literal["federation", "centralised"]
    job: dict[str, Any]
    classes: int
    records: dict[str, int]
    seeds: list[int]
    attacks: list[str]
    says: list[str]
    points: list[MeasuredPoint]


@dataclass(frozen=True)
class Point:
    """A point of a frontier: see `MeasuredPoint`. Measures are means over `seeds`.

    `v_measure`: attack → (mean, standard deviation or None for one seed). `cells`: None where not measured.
    """

    defence: str
    settings: Mapping[str, Any]
    auc: float | None
    auc_sd: float | None
    accuracy: float | None
    v_measure: Mapping[str, tuple[float, float | None]]
    cells: MeasuredCells | None
    protocol: str
    seeds: tuple[int, ...]
    data_digest: str
    table: str


@dataclass(frozen=True)
class Frontier:
    """The points of one table, protocol and split between parties, and the document they are from."""

    points: tuple[Point, ...]
    document: FrontierDocument


def load_frontier(path: Path) -> Frontier:
    """Read a `frontier.json`.

    Raises:
        BadInput: it cannot be read, is of a newer version, or is not such a document.
    """
    try:
        document = FrontierDocument.model_validate_json(path.read_bytes())
    except OSError as failure:
        raise BadInput(f"{path}: cannot be read: {failure.strerror}") from None
    except ValidationError as failure:
        first = failure.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise BadInput(
            f"{path}: is no frontier of version {VERSION} ({where}: {first['msg']}); make it with treetap frontier"
        ) from None
    return Frontier(tuple(_point(point, document) for point in document.points), document)


def _point(it: MeasuredPoint, document: FrontierDocument) -> Point:
    return Point(
        defence=it.defence,
        settings=it.settings,
        auc=it.auc.mean,
        auc_sd=it.auc.sd,
        accuracy=it.accuracy.mean,
        v_measure={name: (spread.mean, spread.sd) for name, spread in it.v_measure.items() if spread.mean is not None},
        cells=it.cells,
        protocol=document.protocol,
        seeds=tuple(it.seeds),
        data_digest=document.data_digest,
        table=document.table,
    )
