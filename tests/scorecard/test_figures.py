"""The figures of docs/scorecard.md: cards of four tables, of the model's points, whole ones, and merged bins."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from sklearn.model_selection import train_test_split

import treetap
from treetap.lab.experiment.joint_model import open_shards
from treetap.lab.scorecard.card import Card
from treetap.lab.scorecard.options import Frame
from treetap.lab.scorecard.parts import BINS_SEED, Part, Records, hand
from treetap.trees.metrics import auc

ROOT = Path(__file__).parents[2]
#: Table → its label.
LABELS = {
    "loans": "defaulted",
    "credit_default": "default.payment.next.month",
    "give_me_some_credit": "SeriousDlqin2yrs",
    "bank_marketing": "y",
}
SEEDS = 3
#: Most records that are drawn of a table.
MOST = 40_000


def table_of(name: str) -> tuple[Any, Any, list[str]]:
    """The columns of numbers, the label, and the columns of telco: of the loans its own, else the latter half."""
    if name == "loans":
        table = pd.read_csv(ROOT / "examples" / "loans" / "loans.csv")
    else:
        table = pd.read_parquet(Path(os.environ["TREETAP_DATA"]) / f"{name}.parquet")
    table = table.sample(MOST, random_state=0) if len(table) > MOST else table
    table.index = [f"r{place:06d}" for place in range(len(table))]
    label = table.pop(LABELS[name]).isin([1, "1", "yes"])
    numbers = table.select_dtypes("number")
    columns = list(numbers)
    telco = ["monthly_bill", "late_bills", "roaming_days"] if name == "loans" else columns[len(columns) // 2 :]
    return numbers, label.astype(int), telco


def measured(name: str, seed: int, folder: Path) -> list[float]:
    """AUC of the model, of whole points, of merged bins, of telco's part alone; bins before and after."""
    numbers, label, telco = table_of(name)
    split = train_test_split(np.array(numbers.index, dtype=object), test_size=0.3, random_state=seed, stratify=label)
    training, held = (sorted(part) for part in split)
    parties = {"bank": [column for column in numbers if column not in telco], "telco": telco}
    settings = {"n_estimators": 100, "max_depth": 1, "learning_rate": 0.3}
    model = treetap.FederatedClassifier(parties, label_holder="bank", simulate=True, **settings)
    model.fit(numbers.loc[training], label.loc[training]).save(folder)
    bank, other = (Part.open(folder / party) for party in ("bank", "telco"))
    hand(folder / "telco.json", BINS_SEED, other, "bank", other.bins_to_hand())
    card, opened = (
        bank.card(Frame(), *bank.two_classes(None, None), [folder / "telco.json"]),
        open_shards({it: folder / it for it in parties}),
    )

    def records(ids: list[str]) -> Records:
        """What an explained prediction tells: the side of each of telco's splits."""
        sides = {}
        for split in (split for tree in opened.published.used_trees for split in tree.splits if split.owner == "telco"):
            own = opened.meaning(split)
            column = other.manifest["columns"][own.feature]
            sides["telco", split.handle] = own.goes_left(numbers.loc[ids, column].to_numpy(float))
        cells = numbers.loc[ids, bank.manifest["columns"]].to_numpy(float)
        return Records(SimpleNamespace(ids=ids), cells, label.loc[ids].to_numpy() == 1, sides)  # type: ignore[arg-type]

    seen, unseen = records(training), records(held)
    cells = unseen.cells(bank, card)
    counted = [column.counted(at, seen.bad) for column, at in zip(card.columns, seen.cells(bank, card), strict=True)]
    merged = Card(
        card.base, tuple(column.merged(0.05 * len(training), 20, monotonic=True) for column in counted)
    ).whole()
    own = sum(column.party == "bank" for column in card.columns)
    scores = [shown.scores(cells) for shown in (card, card.whole(), merged)]
    scores.append(Card(0, merged.columns[own:]).scores(cells[own:]))
    bins = [sum(len(column.groups) for column in shown.columns) for shown in (card, merged)]
    return [*(auc(score, ~unseen.bad) for score in scores), *map(float, bins)]


@pytest.mark.campaign
@pytest.mark.second_tier
@pytest.mark.skipif("TREETAP_DATA" not in os.environ, reason="needs TREETAP_DATA, the public tables")
@pytest.mark.parametrize("name", LABELS)
def test_the_page_has_the_means_of_three_seeds(name: str, tmp_path: Path) -> None:
    """To the digits that stand there."""
    found = np.mean([measured(name, seed, tmp_path / str(seed)) for seed in range(SEEDS)], axis=0).tolist()
    model, whole, merged, alone, before, after = found
    row = f"| {name.replace('_', ' ')} | " + " | ".join(f"{it:.3f}".lstrip("0") for it in (model, whole, merged))
    row += f" | {before:.0f} → {after:.0f} | {alone:.3f} |".replace("| 0.", "| .")
    assert row in re.sub(r" +", " ", (ROOT / "docs" / "scorecard.md").read_text(encoding="utf-8")), row
