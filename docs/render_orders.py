"""Renders the tables of steps in docs/protocol-*.md, and a picture, from what `treetap protocol` shows.

python docs/render_orders.py            write the tables
python docs/render_orders.py --check    exit with status 1 if a page is stale
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path

from rendering import with_table

from party.prediction.order import table_for
from party.protocols import PREDICTION
from party.runtime.step_order import StepTable, table_in
from treetap.commands.protocol import drawn, lines_of, shown
from treetap.protocols.registry import prediction

DOCS = Path(__file__).resolve().parent
#: Begins the table of a role, a module below `party`; where protocols share it, with the name of one of them.
BEGIN = re.compile(r"<!-- steps of (\S+?)(?: in (\S+))?: begin -->")
#: Modules of the roles of predictions.
PREDICTING = {
    f"{package}.{role.partition('.')[0]}" for name, package in PREDICTION.items() for role in prediction(name).roles
}


def main() -> int:
    """Write the pages, or compare them; returns the exit status."""
    parser = argparse.ArgumentParser(description="Render the tables of steps.")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the pages")
    parser.add_argument("--check", action="store_true", help="change nothing; exit with status 1 if a page is stale")
    options = parser.parse_args()
    stale = False
    for page in sorted(options.docs.glob("protocol-*.md")):
        old = new = page.read_text(encoding="utf-8")
        for role, protocol in BEGIN.findall(old):
            t = "b" if f"party.{role}" in PREDICTING else "t"  # a round is a block of records, or a tree or epoch
            try:
                module = importlib.import_module(f"party.{role}")
            except ModuleNotFoundError as absent:
                print(f"{page}: steps of {role} left as they are: {absent.name} is not installed", file=sys.stderr)
                continue
            table = table_for(protocol, table_in(module)) if protocol else table_in(module)
            new = with_table(
                new, f"steps of {role} in {protocol}" if protocol else f"steps of {role}", rendered(table, t)
            )
        if options.check and new != old:
            print(f"{page} is stale: run make orders", file=sys.stderr)
            stale = True
        elif new != old:
            page.write_text(new, encoding="utf-8")
    picture = options.docs / "protocol-boosting.svg"
    (boosting,) = shown("boosting")
    if not picture.exists() or picture.read_text(encoding="utf-8") != drawn(boosting):
        if options.check:
            print(f"{picture} is stale: run make orders", file=sys.stderr)
            stale = True
        else:
            picture.write_text(drawn(boosting), encoding="utf-8")
    return int(stale)


def rendered(table: StepTable, t: str) -> str:
    """A role's table in Markdown, a line per step that was done; `t`: the name of a round."""
    lines = [f"| {after} | {'; '.join(may_come) or 'nothing'} |" for _, after, may_come in lines_of(table, t, "`")]
    return "\n".join(["| after | may come |", "|---|---|", *lines]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
