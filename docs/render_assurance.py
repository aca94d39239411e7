"""Renders the table of docs/assurance.md from the summaries that campaigns and attacks write below runs/campaign.

python docs/render_assurance.py [--summaries FOLDER]

A row whose summary is not there stays as it is, so that one command can be run again by itself.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from rendering import with_table

DOCS = Path(__file__).resolve().parent
TABLE = "assurance"
HEAD = "| campaign | what is tried | cases | findings | CPU time | command |\n|---|---|---|---|---|---|\n"


class Row(NamedTuple):
    """A campaign: what it tries, the figures that count its cases, with their words, and its command."""

    tries: str
    counts: dict[str, str]
    command: str


COMMAND = "python -m tests.campaign"
#: Name of a summary's file → its row.
ROWS: dict[str, Row] = {
    "schedules": Row(
        "faults of disks, processes, workers and networks by plans from seeds",
        {"schedules": "schedules", "faults": "faults", "crashes": "crashes", "real": "with real ciphers"},
        f"{COMMAND} schedules",
    ),
    "crash-points": Row(
        "one crash, torn write or power loss at each file operation",
        {"schedules": "crash points", "crashes": "crashes"},
        f"{COMMAND} crash-points",
    ),
    "corruptions": Row(
        "one damaged file of one process: bytes, lines, whole files",
        {"right": "did no harm", "named": "named"},
        f"{COMMAND} corruptions",
    ),
    "sockets": Row(
        "real processes suspended and killed, hung workers, slow lines",
        {"faults": "faults", "jobs": "jobs"},
        f"{COMMAND} sockets",
    ),
    "soak": Row("half an hour of jobs: what grows", {"jobs": "jobs"}, f"{COMMAND} soak"),
    "fuzz": Row(
        "one field of one message of a job altered to a boundary value",
        {"cases": "messages", "of": "there are"},
        f"{COMMAND} fuzz",
    ),
    "certificates": Row(
        "every kind of certificate, in every role, against every method of every server, and wrong servers",
        {"cases": "pairings"},
        f"{COMMAND} certificates",
    ),
    "raw-bytes": Row(
        "bytes that are no message, from rightful callers to every method",
        {"cases": "messages"},
        f"{COMMAND} raw-bytes",
    ),
    "http": Row("requests to the HTTP endpoint from its OpenAPI document", {"cases": "requests"}, f"{COMMAND} http"),
    "step-orders": Row(
        "every step asked for at every moment of small jobs, of every role of every protocol",
        {"cases": "requests", "moments": "moments", "steps": "steps"},
        f"{COMMAND} step-orders",
    ),
}


def main() -> int:
    """Write the page; returns the exit status."""
    parser = argparse.ArgumentParser(description="Render the table of campaigns.")
    parser.add_argument("--summaries", type=Path, default=Path("runs/campaign"), help="the folder of the summaries")
    options = parser.parse_args()
    page = DOCS / "assurance.md"
    text = page.read_text(encoding="utf-8")
    lines = kept(text)
    for name, row in ROWS.items():
        path = options.summaries / f"{name}.json"
        if path.is_file():
            lines[name] = rendered(name, json.loads(path.read_text(encoding="utf-8")))
        elif name not in lines:
            print(f"{path} is not there: {row.command}", file=sys.stderr)
    table = HEAD + "".join(f"{lines[name]}\n" for name in ROWS if name in lines)
    page.write_text(with_table(text, TABLE, table), encoding="utf-8")
    return 0


def kept(text: str) -> dict[str, str]:
    """Name → line of the rows that a page has."""
    return {found[1]: found[0] for found in re.finditer(r"^\| ([a-z-]+) \|.*\|$", text, re.M) if found[1] in ROWS}


def rendered(name: str, summary: dict[str, Any]) -> str:
    """The line of a campaign."""
    row = ROWS[name]
    counts = [f"{summary[key]:,} {word}" for key, word in row.counts.items() if key in summary]
    seed = f" --seed {summary['seed']}" if "seed" in summary else ""
    count = f" --count {summary['cases']}" if name == "fuzz" else ""
    cpu = f"{summary['cpu_s']:,.0f} s" if "cpu_s" in summary else "—"
    return (
        f"| {name} | {row.tries} | {', '.join(counts)} | {summary['findings']} | {cpu} | `{row.command}{count}{seed}` |"
    )


if __name__ == "__main__":
    sys.exit(main())
