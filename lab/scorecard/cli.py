"""`treetap model scorecard` and `treetap model stability`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treetap.commands.options import Json, from_dataclasses
from treetap.lab.scorecard.options import CardOptions, Frame, StabilityOptions

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="Folder of a published model; with --config, the name of one.")
]
Config = Annotated[Path | None, typer.Option(help="The party's configuration file, whose state folder has the model.")]


@from_dataclasses
def model_scorecard(
    name: Model, asked: CardOptions, frame: Frame, config: Config = None, as_json: Json = False
) -> None:
    """Show a model of trees of depth 1 as points of the bins of its columns, whose sum is a record's score.

    The label holder sees all points, of other parties' columns by handle or, with --bins, bin by bin. A partner sees
    the bins of its own columns; their points are in the file that the label holder writes for it, if its policy lets
    LEAF_WEIGHT go there.

    treetap model scorecard credit --config bank.toml --table train --monotonic --out card.sql
    """
    from treetap.lab.scorecard.command import scorecard

    scorecard(name, config, asked, frame, as_json=as_json)


@from_dataclasses
def model_stability(
    name: Model, asked: StabilityOptions, frame: Frame, config: Config = None, as_json: Json = False
) -> None:
    """Compare two tables of a party by the bins of its model's columns, and the scores of two predictions.

    The population stability index counts as stable below 0.1 and as shifted from 0.25 on; half a record more in each
    bin keeps empty ones finite. Beside it, what the records' move between bins does to the mean score. Nothing leaves
    the party.

    treetap model stability credit --config bank.toml --expected train --actual june
    """
    from treetap.lab.scorecard.command import stability

    stability(name, config, asked, frame, as_json=as_json)
