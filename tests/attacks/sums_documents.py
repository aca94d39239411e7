"""Audit documents of jobs of trees whose label holder attacked columns by the sums that it opened, made by code."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.attacks.documents import HOLDER, made
from treetap.attacks.document import Document
from treetap.attacks.networks.schema import png_url
from treetap.attacks.sums.schema import CellsRead, ColumnCuts, ColumnFigures, ColumnPicture


def figures(party: str, **changes: Any) -> ColumnFigures:
    """A reading whose figures all differ from one another."""
    pixels = [png_url(np.linspace(0, high, 16, dtype=np.float32).reshape(1, 4, 4)) for high in (1.0, 0.5)]
    given: dict[str, Any] = {
        "party": party,
        "records": 900,
        "columns": 8,
        "trees": 5,
        "candidates": 240,
        "equations": 77,
        "left_sets": CellsRead(placed=0.0213, claims=153, wrong=0),
        "cuts": [
            ColumnCuts(column="systolic", cuts=7, between=0.3125, placed=0.0417),
            ColumnCuts(column="hdl", cuts=0, between=0.0, placed=0.0),
        ],
        "differences": CellsRead(placed=0.611, claims=4_404, wrong=5),
        "together": CellsRead(placed=0.8421, claims=6_128, wrong=65),
        "given": CellsRead(placed=0.9954, claims=7_171, wrong=4),
        "links": 0.876,
        "contradictions": 19,
        "best": "systolic",
        "rank_correlation": 0.9643,
        "given_correlation": 0.9987,
        "picture": ColumnPicture(truth=pixels[0], read=pixels[1]),
        "seconds": 12.34,
        "reasons": {},
    }
    return ColumnFigures.model_validate(given | changes)


def unread(party: str, why: str) -> ColumnFigures:
    """A party that was not attacked."""
    none = dict.fromkeys(("differences", "together", "given", "links", "best", "rank_correlation", "picture"))
    nothing = CellsRead(placed=0.0, claims=0, wrong=0)
    return figures(party, left_sets=nothing, cuts=[], contradictions=0, reasons={"sums": why}, **none)


def both_directions(*read: ColumnFigures, alone: bool = False, **kinds: Any) -> Document:
    """An audit of feature parties and of their label holder; `alone`: of the label holder only.

    `kinds`: arguments of `made`.
    """
    content = made(**kinds).plain()
    holder = {
        "transcript": f"{HOLDER}-state/transcripts/example-7f3a",
        "columns": [],
        "received": [
            {"class": "CANDIDATE_SUM", "from": "telco", "step": "candidate_sums", "messages": 3, "bytes": 40_017}
        ],
        "sent": [],
        "attacks": {},
        "bounds": [],
        "signature": {"signatures": 4_321, **dict.fromkeys(("label_entropy", "mutual_information", "by_chance"))}
        | {"by_tree": []},
        "trees": next(iter(content["parties"].values()))["trees"],
        "faults": [],
        "signed": "",
        "columns_read": {it.party: it.plain() for it in read},
    }
    if alone:
        content |= {"parties": {}, "advice": None, "classes": None, "class_names": None, "labelled": False}
        content["verdicts"] = []
    content["parties"] |= {HOLDER: holder}
    return Document.model_validate(content)
