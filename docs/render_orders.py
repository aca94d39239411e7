"""Renders the tables of steps in docs/protocol-*.md from those that the roles execute.

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

from party.alignment.steps import ALIGNMENT
from party.prediction.feature_names import NAMES
from party.protocols import PREDICTION
from party.runtime.step_order import (
    ANY,
    LATER,
    NEXT_ROUND,
    NEXT_STAGE,
    ONCE,
    OPENING,
    RESUMED,
    SAME,
    THIS_ROUND,
    Next,
    StepTable,
    table_in,
)
from treetap.protocols.registry import prediction

DOCS = Path(__file__).resolve().parent
#: Begins the table of a role, a module below `party`.
BEGIN = re.compile(r"<!-- steps of (\S+): begin -->")
#: Modules of the roles of predictions.
PREDICTING = {
    f"{package}.{role.partition('.')[0]}" for name, package in PREDICTION.items() for role in prediction(name).roles
}
#: Names in a table that are no steps: as what was done, as what may come.
NO_STEPS = {
    OPENING: ("opening the job", ""),
    ALIGNMENT: ("the alignment", "the steps of the alignment"),
    NAMES: ("the names", "the step of the names"),
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
        for role in BEGIN.findall(old):
            t = "b" if f"party.{role}" in PREDICTING else "t"  # a round is a block of records, or a tree or epoch
            try:
                module = importlib.import_module(f"party.{role}")
            except ModuleNotFoundError as absent:
                print(f"{page}: steps of {role} left as they are: {absent.name} is not installed", file=sys.stderr)
                continue
            steps = module.STEPS if hasattr(module, "STEPS") else table_in(module)
            new = with_table(new, f"steps of {role}", rendered(steps, t))
        if options.check and new != old:
            print(f"{page} is stale: run make orders", file=sys.stderr)
            stale = True
        elif new != old:
            page.write_text(new, encoding="utf-8")
    return int(stale)


def rendered(table: StepTable, t: str) -> str:
    """A role's table in Markdown, a line per step that was done; `t`: the name of a round."""
    targets = [each for row in table.values() for each in row]
    with_round = {each.step for each in targets if each.place is not ONCE}
    with_stage = {each.step for each in targets if each.place in (SAME, NEXT_STAGE, ANY, LATER)}
    lines = ["| after | may come |", "|---|---|"]
    for done, row in table.items():
        arguments = f"({t}, l)" if done in with_stage else f"({t})" if done in with_round else ""
        after = NO_STEPS[done][0] if done in NO_STEPS else f"`{done}{arguments}`"
        following = (_next(each, t, each.step in with_round, each.step in with_stage) for each in row)
        lines.append(f"| {after} | {'; '.join(following) or 'nothing'} |")
    return "\n".join(lines) + "\n"


def _next(each: Next, t: str, rounds: bool, stages: bool) -> str:
    if each.step in NO_STEPS:
        step = NO_STEPS[each.step][1]
    else:
        places = {SAME: f"({t}, l)", NEXT_STAGE: f"({t}, l+1)", ANY: f"({t}, l)", LATER: f"({t}', l')"}
        places[ONCE] = "(0, 0)" if stages else "(0)" if rounds else ""
        places |= dict.fromkeys((THIS_ROUND, RESUMED), f"({t}, 0)" if stages else f"({t})")
        places[NEXT_ROUND] = f"({t}+1, 0)" if stages else f"({t}+1)"
        step = f"`{each.step}{places[each.place]}`"
    notes = {
        RESUMED: f" for a round {t} to go on with",
        ANY: f" for any {t} and l",
        LATER: f" for ({t}', l') > ({t}, l)",
    }
    note = notes.get(each.place, "")
    return step + note + (f"{',' if note else ''} if {each.when}" if each.when else "")


if __name__ == "__main__":
    sys.exit(main())
