"""The tables of steps in docs/protocol-*.md, and a picture, from what `treetap protocol` shows."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from tools.renderers.rendering import with_table
from treetap.commands.protocol import drawn, lines_of, shown
from treetap.party.prediction.steps import table_for
from treetap.party.protocols import PREDICTION
from treetap.party.runtime.step_order import StepTable, table_in
from treetap.protocols.registry import prediction

#: Begins the table of a role, a module below `party`; where protocols share it, with the name of one of them.
BEGIN = re.compile(r"<!-- steps of (\S+?)(?: in (\S+))?: begin -->")
#: Modules of the roles of predictions.
PREDICTING = {
    f"{package}.{role.partition('.')[0]}" for name, package in PREDICTION.items() for role in prediction(name).roles
}


def rendered(docs: Path) -> dict[Path, str]:
    """The pages, and the picture of boosting."""
    files = {page: with_steps(page) for page in sorted(docs.glob("protocol-*.md"))}
    (boosting,) = shown("boosting")
    return {**files, docs / "protocol-boosting.svg": drawn(boosting)}


def with_steps(page: Path) -> str:
    """A page with the tables of the roles that it names."""
    text = page.read_text(encoding="utf-8")
    for role, protocol in BEGIN.findall(text):
        t = "b" if f"treetap.party.{role}" in PREDICTING else "t"  # a round is a block of records, or a tree or epoch
        try:
            module = importlib.import_module(f"treetap.party.{role}")
        except ModuleNotFoundError as absent:
            print(f"{page}: steps of {role} left as they are: {absent.name} is not installed", file=sys.stderr)
            continue
        steps = table_for(protocol, table_in(module)) if protocol else table_in(module)
        name = f"steps of {role} in {protocol}" if protocol else f"steps of {role}"
        text = with_table(text, name, table(steps, t))
    return text


def table(steps: StepTable, t: str) -> str:
    """A role's table in Markdown, a line per step that was done; `t`: the name of a round."""
    lines = [f"| {after} | {'; '.join(may_come) or 'nothing'} |" for _, after, may_come in lines_of(steps, t, "`")]
    return "\n".join(["| after | may come |", "|---|---|", *lines]) + "\n"
