"""Renders the table of campaigns from the summaries that campaigns and attacks write below runs/campaign.

python -m tools.renderers.assurance [--summaries FOLDER]

A row whose summary is not there stays as it is, so that one command can be run again by itself.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tools.renderers.rendering import page_with, with_table

TABLE = "assurance"
HEAD = "| campaign | what is tried | cases | findings | CPU time | command |\n|---|---|---|---|---|---|\n"


class Row(NamedTuple):
    """A campaign: what it tries, the figures that count its cases, with their words, and the options it was given.

    `options`: option → the figure that is its value; one whose figure is 0 or not there is left out.
    """

    tries: str
    counts: dict[str, str]
    options: dict[str, str] = {}


COMMAND = "python -m tests.campaign"
#: Name of a summary's file → its row.
ROWS: dict[str, Row] = {
    "schedules": Row(
        "jobs while disks, processes, workers and networks fail, by plans from seeds",
        {"schedules": "schedules", "faults": "faults", "crashes": "crashes", "real": "with the real cipher"},
        {"count": "schedules", "first": "first"},
    ),
    "crash-points": Row(
        "one process ended, or its power cut, at one of its file operations",
        {"schedules": "trainings", "crashes": "crashes"},
        {"count": "schedules"},
    ),
    "kills": Row(
        "every process killed at every message of a training, the job resumed",
        {"schedules": "trainings", "crashes": "kills", "real": "with the real cipher"},
    ),
    "corruptions": Row(
        "one file of one stopped process damaged: bytes, lines, the whole file",
        {"cases": "files", "right": "did no harm", "named": "named by an error"},
        {"count": "cases", "first": "first"},
    ),
    "sockets": Row(
        "real processes suspended and killed, slow lines, clients over HTTP",
        {"faults": "faults", "jobs": "jobs"},
        {"seed": "seed"},
    ),
    "soak": Row(
        "trainings, predictions and cancelled jobs one after the other on real processes: what grows",
        {"jobs": "jobs", "coordinator_bytes_per_job": "bytes a job at the coordinator"},
        {"minutes": "minutes"},
    ),
    "fuzz": Row(
        "one field of one message of a job altered to a boundary value",
        {"cases": "messages", "of": "there are"},
        {"count": "cases", "seed": "seed"},
    ),
    "certificates": Row(
        "every kind of certificate, in every role, against every method of every server, and wrong servers",
        {"cases": "pairings"},
    ),
    "raw-bytes": Row(
        "bytes that are no message, from rightful callers to every method", {"cases": "messages"}, {"seed": "seed"}
    ),
    "http": Row("requests to the HTTP endpoint from its OpenAPI document", {"cases": "requests"}, {"seed": "seed"}),
    "tables": Row(
        "files of tables with changed bytes, in every format",
        {"cases": "files", "read": "read", "refused": "named by an error"},
        {"count": "count", "seed": "seed"},
    ),
    "step-orders": Row(
        "every step asked for at every moment of small jobs, of every role of every protocol",
        {"cases": "requests", "moments": "moments", "steps": "steps"},
    ),
}


def main() -> int:
    """Write the page; returns the exit status."""
    parser = argparse.ArgumentParser(description="Render the table of campaigns.")
    parser.add_argument("--summaries", type=Path, default=Path("runs/campaign"), help="the folder of the summaries")
    options = parser.parse_args()
    page = page_with(TABLE)
    text = page.read_text(encoding="utf-8")
    lines = kept(text)
    for name in ROWS:
        path = options.summaries / f"{name}.json"
        if path.is_file():
            lines[name] = rendered(name, json.loads(path.read_text(encoding="utf-8")))
        elif name not in lines:
            print(f"{path} is not there: {COMMAND} {name}", file=sys.stderr)
    table = HEAD + "".join(f"{lines[name]}\n" for name in ROWS if name in lines)
    page.write_text(with_table(text, TABLE, table), encoding="utf-8")
    return 0


def kept(text: str) -> dict[str, str]:
    """Name → line of the rows that a page has."""
    return {found[1]: found[0] for found in re.finditer(r"^\| ([a-z-]+) \|.*\|$", text, re.M) if found[1] in ROWS}


def rendered(name: str, summary: dict[str, Any]) -> str:
    """The line of a campaign."""
    row = ROWS[name]
    counts = ", ".join(f"{summary[key]:,} {word}" for key, word in row.counts.items())
    given = "".join(f" --{option} {summary[key]:.10g}" for option, key in row.options.items() if summary.get(key))
    cpu = f"{summary['cpu_s']:,.0f} s"
    if "cpu_s_per_schedule" in summary:
        cpu += f", {summary['cpu_s_per_schedule']:.2f} s each"
    return f"| {name} | {row.tries} | {counts} | {summary['findings']} | {cpu} | `{COMMAND} {name}{given}` |"


if __name__ == "__main__":
    sys.exit(main())
