"""Measured frontiers: what a defence leaves to attackers of labels and of columns, against its cost in accuracy.

`treetap frontier` writes one as JSON; whoever advises on defences reads it with `load_frontier`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from treetap.errors import BadInput, cannot
from treetap.strict import Figure, Strict

#: Version of the document; raised when an older treetap could not read what is written.
VERSION: Final = 4
#: The defence of a point without one.
NO_DEFENCE: Final = "none"


class Measured(Strict):
    """Mean over the seeds, None if undefined, as an AUC can be; standard deviation of a sample, None for one seed."""

    mean: Figure
    sd: Figure = None


class MeasuredCells(Strict):
    """Shares of a feature party's cells (record, column) that the label holder placed in their bins.

    `read`: by all that it read, links found by itself, at least the floor. `left_sets`: by the left sets of won
    splits alone, a floor. `given`: with all links given, a bound. `explained`: beside them the variance of places in
    columns of numbers that expected places explain, the mean R² over these columns, 0 before the training; undefined
    without such a column.
    """

    read: Measured
    left_sets: Measured
    given: Measured
    explained: Measured


class MeasuredPoint(Strict):
    """A defence with its settings.

    `defence`: "none", "id_lmid", "reduced_leakage", "label_dp", "label_dp + refit", "grafting", "grafting + refit";
    "min_cell_records", of every feature party; or "job", no defence, whose `settings` are parameters of the job that
    differ. `settings`: keys as in a party's table `[defences]`, as `{"xi": 0.5, "counts": "shown"}`.
    `auc`, `accuracy`: of the held-out rows. `v_measure`: by attack, in each seed that of the feature party where it is
    largest; `parties`: by party and attack. `added`: what a feature party can guess of the labels with the training
    less what it can without, in each seed of the party that the training tells most; 0: taking part told nothing; its
    deviation, of one seed with known labels, is the error by their draws.
    `gain`: AUC above that of the label holder alone, seed by seed. `cells`: in each seed of the feature party of which
    most was read, `explained` of that of which most was explained, None where this was not measured; `cells_of`: by
    party.
    """

    defence: str
    settings: dict[str, Any]
    auc: Measured
    accuracy: Measured
    v_measure: dict[str, Measured]
    parties: dict[str, dict[str, Measured]]
    added: Measured
    gain: Measured
    cells: MeasuredCells | None
    cells_of: dict[str, MeasuredCells]
    seeds: list[int]


class MeasuredAlone(Strict):
    """The model of the label holder's own columns, trained centrally; without columns it guesses the class shares.

    Of the held-out rows.
    """

    auc: Measured
    accuracy: Measured


class Recommended(Strict):
    """The point to take, by its place among the points; None where none is recommended, for the reason in `says`.

    `kept`: its share of the gain over the label holder alone, `taken`: the share that it takes away of what the
    training adds. `lines`: file → lines to write into it.
    """

    point: int | None
    says: str
    kept: float | None = None
    taken: float | None = None
    lines: dict[str, list[str]] = {}


class FrontierDocument(Strict):
    """The document that `treetap frontier` writes.

    `table`: the file's name; `data_digest`: SHA-256 of its content. `job`: the parameters of the model. `attacks`:
    names of `treetap attack`, "cl" being the reference without a training. `measure`: of what is guessed of labels, the
    accuracy or, where a class is rare, the AUC by known labels; `before`: what the party that the training tells most
    without a defence can guess without it. `says`: what a reader has to know, as sentences.
    """

    version: Literal[4]
    table: str
    data_digest: str
    protocol: str
    label_holder: str
    trainer: Literal["federation", "centralised"]
    job: dict[str, Any]
    classes: int
    records: dict[str, int]
    seeds: list[int]
    attacks: list[str]
    measure: Literal["accuracy", "AUC"]
    before: Measured
    says: list[str]
    points: list[MeasuredPoint]
    alone: MeasuredAlone
    recommended: Recommended

    @property
    def undefended(self) -> MeasuredPoint | None:
        """The point without a defence, if it was measured."""
        return next((point for point in self.points if point.defence == NO_DEFENCE), None)


def load_frontier(path: Path) -> FrontierDocument:
    """Read a `frontier.json`.

    Raises:
        BadInput: it cannot be read, is of a newer version, or is not such a document.
    """
    with cannot("be read", path):
        content = path.read_bytes()
    try:
        return FrontierDocument.model_validate_json(content)
    except ValidationError as failure:
        first = failure.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise BadInput(
            f"{path}: is no frontier of version {VERSION} ({where}: {first['msg']}); make it with treetap frontier"
        ) from None
