"""`treetap model scorecard`: the card of a model of trees of depth 1, or a party's part of it, printed and written.

`treetap model stability`: how records have moved between the card's bins, and between scores. The population stability
index of a column is Σ (q − p) ln(q / p) over its bins, p and q their shares before and now; the characteristic analysis
Σ (q − p) · points says what the move does to the mean score (Siddiqi 2006). Both are of one party's own columns, in its
own tables; nothing leaves the party.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treetap import terminal
from treetap.arrays import Array, Ints
from treetap.commands.model.view import find
from treetap.commands.options import print_json, reading
from treetap.errors import BadInput, cannot
from treetap.lab.experiment.joint_model import table_of_model
from treetap.lab.experiment.xgboost_export import trained_table
from treetap.lab.scorecard.card import Card
from treetap.lab.scorecard.exports import exported, reasons
from treetap.lab.scorecard.options import CardOptions, Frame, StabilityOptions
from treetap.lab.scorecard.parts import BINS_SEED, Part, Records, hand, read_records, send_points
from treetap.models.durable import write_whole
from treetap.party.config import read
from treetap.tables.written import written
from treetap.trees.metrics import auc, population_stability, shares_of, stability_index


def scorecard(name: str, config: Path | None, asked: CardOptions, frame: Frame, *, as_json: bool) -> None:
    """Print a card and write its files. Raises `BadInput` for a model, an option or a file that does not fit."""
    frame.check()
    folder = find(name, config)
    with reading(folder):
        part = Part.open(folder)
    part.check_additive()
    asked.check(part.party, config, holds_labels=part.holds_labels)
    classes = part.two_classes(asked.good, asked.bad) if part.holds_labels else ("", "")
    table = trained_table(config, asked.table)
    records = None if table is None else read_records(part, table, classes, asked.explained)
    exact = part.card(frame, *classes, asked.bins or ()) if part.holds_labels else part.told(asked.points)
    card = exact if records is None else _counted(exact, part, records, asked)
    whole = card.whole() if part.holds_labels else card
    content = {"model": part.manifest["job"], "party": part.party, "role": part.manifest["role"]}
    content["bins"] = [row for column in whole.columns for row in column.rows()]
    if part.holds_labels:
        cuts = [{"score": cut, "bad_by_frame": frame.bad(cut)} for cut in asked.cut_off or ()]
        of = dict(zip(("good", "bad"), classes, strict=True))
        content |= {"frame": vars(frame), "classes": of, "base": int(whole.base), "cut_offs": cuts}
    cells = [] if records is None else records.cells(part, exact)
    if records is not None and part.holds_labels and cells:
        _measure(content, records, cells, [exact, card, whole])
    if asked.send_bins is not None:
        hand(asked.send_bins, BINS_SEED, part, part.manifest["label_holder"], part.bins_to_hand())
    if asked.send_points is not None and config is not None:
        least = asked.min_records if asked.send_rates else None
        send_points(asked.send_points, part, whole, read(config), asked.bins or (), least)
    if asked.reasons is not None and records is not None and cells:
        with cannot("be written", asked.reasons):
            write_whole(asked.reasons, reasons(whole, records.table.ids.array.to_pylist(), cells).encode())
    for path in asked.out or ():
        with cannot("be written", path):
            write_whole(path, exported(whole, part.party, path.suffix[1:]).encode())
    if as_json:
        print_json(content, allow_nan=False)
    else:
        _print(content)


def _counted(card: Card, part: Part, records: Records, asked: CardOptions) -> Card:
    """The card with records in the bins of those columns that the records tell, merged on wish."""
    cells, least = records.cells(part, card), asked.min_share * len(records.table.ids)
    columns = [
        column.counted(at, records.bad, records.weights) for column, at in zip(card.columns, cells, strict=False)
    ]
    if part.holds_labels:
        columns = [column.merged(least, asked.min_records, monotonic=asked.monotonic) for column in columns]
    return Card(card.base, (*(column.filled() for column in columns), *card.columns[len(columns) :]))


def _measure(content: dict[str, Any], records: Records, cells: Sequence[Ints], cards: Sequence[Card]) -> None:
    """Add AUC of the model's points, of merged and of whole ones, and what is accepted from each cut-off.

    All are of the columns whose bins the records tell, `of`: without an explained prediction of the own ones alone.
    """
    bad, weights = records.bad, records.weights
    scores = [Card(card.base, card.columns[: len(cells)]).scores(cells) for card in cards]  # own columns come first
    whole = len(cells) == len(cards[0].columns)
    told: dict[str, Any] = {"of": "all columns" if whole else "own columns", "records": len(bad), "bad": int(bad.sum())}
    told |= {} if weights is None else {"weight": float(weights.sum())}
    content["measured"] = told | dict(zip(AUCS, (auc(score, ~bad, weights) for score in scores), strict=True))
    for row in content["cut_offs"] if whole else ():
        taken = scores[-1] >= row["score"]
        rate = np.average(bad[taken], weights=None if weights is None else weights[taken]) if taken.any() else None
        row |= {"accepted": float(np.average(taken, weights=weights)), "bad_rate": rate}


#: AUC of the model's points, of those of merged bins, and of whole points.
AUCS = ("auc", "auc_merged", "auc_whole_points")


def _print(content: dict[str, Any]) -> None:
    """Print a card, what its scores mean, and what was measured."""
    rows, said = content["bins"], list[str]()
    heads = max(map(list, rows), key=len, default=[])
    terminal.print_table(
        (it.replace("_", " ") for it in heads), ([_shown(row.get(it)) for it in heads] for row in rows)
    )
    if frame := content.get("frame"):
        good, bad = content["classes"].values()
        said.append(
            f"a score is {content['base']} and the points of a bin of each column; at {frame['base_points']:g} good "
            f"({good}) to bad ({bad}) is {frame['odds']:g} to 1, and {frame['pdo']:g} points double it"
        )
    for cut in content.get("cut_offs", ()):
        said.append(", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in cut.items()))
    if figures := content.get("measured"):
        first, merged, whole = (figures[name] for name in AUCS)
        weigh = f" that weigh {figures['weight']:.6g}" if "weight" in figures else ""
        said.append(
            f"AUC of {figures['of']} on {figures['records']} records{weigh}, {figures['bad']} of them bad: "
            f"{first:.4f}; bins as merged lose {first - merged:.4f}, whole points {merged - whole:.4f}"
        )
    for line in said:
        terminal.out.print(terminal.text(line), soft_wrap=True)


def _shown(value: object) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


#: The least index of each word.
WORDS = ((0.25, "shifted"), (0.1, "moving"), (0.0, "stable"))


def stability(name: str, config: Path | None, asked: StabilityOptions, frame: Frame, *, as_json: bool) -> None:
    """Print the indices. Raises `BadInput` for a model, a table or a file that does not fit."""
    frame.check()
    asked.check(config)
    folder = find(name, config)
    with reading(folder):
        part = Part.open(folder)
    part.check_additive()
    rows: list[dict[str, Any]] = []
    if asked.expected_scores is not None and asked.actual_scores is not None:
        rows.append(_row("score", population_stability(_scores(asked.expected_scores), _scores(asked.actual_scores))))
    tables = [trained_table(config, table) for table in (asked.expected, asked.actual)]
    values = [table_of_model(part.manifest, table).features for table in tables if table is not None]
    if part.holds_labels and asked.points is not None:
        raise BadInput(f"--points is not for {part.party}, which has the labels of this model: leave it out")
    card = (
        part.card(frame, *part.two_classes(None, None), ()).of(part.party)
        if part.holds_labels
        else part.told(asked.points)
    )
    for column in card.columns if values else ():
        feature, count = part.manifest["columns"].index(column.name), len(column.groups)
        bins = (column.bin_of(column.places(of[:, feature])) for of in values)
        before, now = (shares_of(np.bincount(of, minlength=count)) for of in bins)
        shift = float((now - before) @ column.points)
        row = _row(column.name, stability_index(before, now)) | ({} if np.isnan(shift) else {"points": shift})
        shares = zip(column.texts(), before.tolist(), now.tolist(), strict=True)
        rows.append({**row, "bins": [{"bin": text, "expected": p, "actual": q} for text, p, q in shares]})
    if as_json:
        print_json({"model": part.manifest["job"], "party": part.party, "stability": rows}, allow_nan=False)
        return
    shown = ((it["of"], f"{it['index']:.4f}", it["reads"], f"{it.get('points', 0):+.2f}") for it in rows)
    terminal.print_table(("of", "stability index", "reads", "points of the mean"), shown)


def _row(of: str, index: float) -> dict[str, Any]:
    return {"of": of, "index": index, "reads": next(word for least, word in WORDS if index >= least)}


def _scores(path: Path) -> Array:
    with cannot("be read", path):
        table = written(path)
    if "score" not in table.column_names:
        raise BadInput(f"{path}: has no column score, which predictions of two classes have: name such a file")
    return np.asarray(table["score"].drop_null(), dtype=np.float64)
