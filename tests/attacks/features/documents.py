"""Audit documents of a label holder as attacker, made by code."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from treetap.attacks.document import Document, Party, ReceivedRow, Signature
from treetap.attacks.networks.schema import (
    Attribute,
    ClassScores,
    GainFigures,
    Picture,
    Reconstruction,
    RecordScores,
    VictimFigures,
    png_url,
)

HOLDER, VICTIM = "label-holder", "feature-b"


def class_scores(accuracy: float) -> ClassScores:
    """Scores that differ from one another."""
    return ClassScores(accuracy=accuracy, f1=accuracy - 0.01, precision=accuracy - 0.02, recall=accuracy - 0.03)


def attribute(name: str, raw: float, standardised: float, floor: float) -> Attribute:
    """A column that is guessed as a class."""
    return Attribute(
        name=name,
        kind="class",
        classes=2,
        auxiliary=40,
        records=90,
        left_out=3,
        raw=class_scores(raw),
        standardised=class_scores(standardised),
        floor=class_scores(floor),
        headline="raw" if raw >= standardised else "standardised",
    )


def number(name: str, raw: float, standardised: float) -> Attribute:
    """A column that is guessed as a number."""
    return Attribute(
        name=name,
        kind="number",
        classes=None,
        auxiliary=40,
        records=90,
        left_out=0,
        raw_r2=raw,
        standardised_r2=standardised,
        headline="raw" if raw >= standardised else "standardised",
    )


def figures(*, images: bool = True, scored: bool = True) -> VictimFigures:
    """Attacks on one party's columns; a defence has rescaled what tells `loan`."""
    draw = np.random.default_rng(1)

    def image() -> str:
        return png_url(draw.random((1, 8, 8)).astype(np.float32))

    shown = ["truth", "floor", "decode, raw", "decode, standardised"]
    scores = [
        RecordScores(mse=mse, psnr=20.25 if images else None, ssim=ssim if images else None)
        for mse, ssim in ((0.875, 0.125), (0.25, 0.625), (1.0, 0.0625))
    ]
    raw, standardised, floor = scores if scored else (None, None, None)
    guess = Reconstruction(
        attack="decode",
        records=93,
        raw=raw,
        standardised=standardised,
        floor=floor,
        headline="standardised" if scored else None,
        seconds=1.5,
    )
    columns = [attribute("loan", 0.841, 0.962, 0.84), number("age", 0.2, 0.187)] if scored else []
    return VictimFigures(
        source="training",
        job="job",
        epoch=1,
        width=8,
        auxiliary=40,
        victims=93,
        left_out=7,
        scored=scored,
        reconstructions=[guess],
        attributes=columns,
        pictures=[Picture(column="scan", images={what: image() for what in shown}) for _ in range(2)] if images else [],
        reasons={"match-exact": "needs the model that the feature party has published"},
    )


def of_label_holder(**changes: VictimFigures) -> Document:
    """An audit of a label holder alone; `changes`: figures by victim, with _ for -."""
    victims = {name.replace("_", "-"): each for name, each in changes.items()} or {VICTIM: figures()}
    row = ReceivedRow.model_validate(
        {"class": "EMBEDDING", "step": "embeddings", "messages": 3, "bytes": 900, "from": VICTIM}
    )
    holder = Party(
        transcript="label-holder/transcripts/job",
        columns=[],
        received=[row],
        sent=[],
        attacks={},
        bounds=[],
        signature=Signature(signatures=0, label_entropy=None, mutual_information=None, by_chance=None, by_tree=[]),
        trees=[],
        faults=[],
        signed="",
        victims=victims,
    )
    return Document(
        job="job",
        protocol="splitnn",
        label_holder=HOLDER,
        attempt=1,
        records=140,
        classes=None,
        class_names=None,
        labelled=False,
        trees=0,
        max_depth=0,
        discount=1.0,
        created=datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
        treetap="0.1.0",
        verdicts=[],
        parties={HOLDER: holder},
        traffic=[],
        gain=GainFigures.of(None, None, None),
    )
