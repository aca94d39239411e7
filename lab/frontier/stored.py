"""Finished trainings of a frontier on disk: each is whole or not there, and says with what it was made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from treetap.errors import BadInput
from treetap.lab.experiment.kept import changes
from treetap.lab.frontier.frontier_file import FrontierFile, Training
from treetap.models.durable import is_used, make_ignored_folder, write_whole
from treetap.strict import Strict

#: The measures of the held-out rows that a frontier has.
MEASURES = ("auc", "accuracy")


class Cells(Strict):
    """Shares of a feature party's cells that the label holder placed: `read`, `left_sets` alone, with links `given`.

    `explained`: the variance of places in columns of numbers that it explains (R²), None without such a column.
    """

    read: float
    left_sets: float
    given: float
    explained: float | None


class Guess(Strict):
    """The share of labels, or the AUC, that a feature party guesses without the training and with it.

    `drawn`: the error of the difference by the draws of known labels.
    """

    before: float
    after: float
    drawn: float = 0.0


class TrainingResult(Strict):
    """The results of a training.

    `test`: point → measures of the held-out rows; None: undefined. `v_measure`: feature party → attack. `guesses`: by
    feature party, by the `measure` of `treetap.lab.frontier.trainings`; none of the label holder alone. `cells`: of
    feature parties; `unread`: the reasons of those whose sums could not be attacked; both empty where none were to be.
    `local_subtrees`, `hidden_nodes`: what the label holder grew alone. `ciphertexts`: sent, by kind; none of a
    centralised training. `records`: `train` and `test`. `seconds`: wall time, attacks included.
    """

    test: dict[str, dict[str, float | None]]
    v_measure: dict[str, dict[str, float]]
    measure: Literal["accuracy", "AUC"]
    guesses: dict[str, Guess]
    cells: dict[str, Cells]
    unread: dict[str, str]
    classes: int
    local_subtrees: int
    hidden_nodes: int
    ciphertexts: dict[str, int]
    records: dict[str, int]
    seconds: float


def kept(measured: Mapping[str, float | None]) -> dict[str, float | None]:
    """Those of all measures that a frontier has; an undefined AUC is None."""
    return {name: value if (value := measured[name]) == value else None for name in MEASURES}


POINTS = "points"


class StoredTraining(Strict):
    """A file of the folder `points`: what was asked, under which settings, and what came out."""

    made_with: dict[str, Any]
    asked: dict[str, Any]
    result: TrainingResult


def made_with(experiment: FrontierFile, digest: str, attacks: list[str]) -> dict[str, Any]:
    """All that a training depends on beside its defence and its seed, as plain JSON types by the keys of the file."""
    data = experiment.data.model_dump(include={"label", "encode", "test_share"}, mode="json")
    data |= {"drop_constant": True} if experiment.data.drop_constant else {}
    parties = {
        party.name: party.model_dump(include={"columns", "share", "labels", "encode"}, exclude_none=True, mode="json")
        | ({"record": "off"} if party.record == "off" else {})
        for party in experiment.party
    }
    job = experiment.job.params().to_dict() | {"protocol": experiment.job.protocol, **experiment.job.key_by_name}
    return {
        "content of the table": digest,
        **{f"data.{key}": value for key, value in data.items()},
        "[[party]]": parties,
        **{f"job.{key}": value for key, value in job.items()},
        "frontier.trainer": experiment.frontier.trainer,
        "frontier.attacks": attacks,
        "frontier.settings": experiment.frontier.settings,
        "frontier.known_labels": experiment.frontier.known_labels,
        "frontier.sums": experiment.frontier.sums,
    }


class Store:
    """The folder `points` of a frontier's folder.

    Args:
        folder: of the frontier; made if it is not there.
        settings: what `made_with` gives; all that is stored must have been made with the same.

    Raises:
        BadInput: the folder holds something else, or points made with other data or settings, or a damaged file.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder, self._settings = folder / POINTS, dict(settings)
        self._found: dict[str, TrainingResult] = {}
        try:
            if folder.is_dir() and is_used(folder) and not self._folder.is_dir():
                raise BadInput(f"--workdir {folder}: is not empty and holds no frontier; name another folder")
            make_ignored_folder(self._folder)
            for path in sorted(self._folder.glob("*.json")):
                stored = _read(path)
                _check(path, stored.made_with, self._settings)
                self._found[_key(stored.asked)] = stored.result
        except OSError as failure:
            raise BadInput(f"--workdir {folder}: cannot be used: {failure.strerror or failure}") from None

    def get(self, training: Training) -> TrainingResult | None:
        """The result of a training, if it is finished."""
        return self._found.get(_key(training.asked))

    def add(self, training: Training, result: TrainingResult) -> None:
        """Keep a result; it is on disk when this returns."""
        stored = StoredTraining(made_with=self._settings, asked=training.asked, result=result)
        content = stored.model_dump_json(indent=1).encode()
        write_whole(self._folder / f"{training.word}.json", content, mode=0o644)
        self._found[_key(training.asked)] = result


def _read(path: Path) -> StoredTraining:
    try:
        return StoredTraining.model_validate_json(path.read_bytes())
    except ValidationError:
        raise BadInput(f"{path}: is no finished training; remove it, and it is made again") from None


def _check(path: Path, stored: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    if shown := changes(stored, asked):
        raise BadInput(
            f"{path}: was made with other data or settings: {shown}. Points of one frontier are comparable only if all "
            "is the same: name another --workdir, or undo the change"
        )


def _key(asked: Mapping[str, Any]) -> str:
    return json.dumps(asked, sort_keys=True)
