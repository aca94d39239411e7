"""Easy attacks, written apart from the audit's, beside the audit's own: no figure of an audit may be beaten by one.

    python benchmarks/beaten.py [--sets NAME …] [--kinds labels groups recorded columns] [--workdir FOLDER] [--json]
        [--ways NAME …] [--records 5000] [--trees 10] [--depth 4] [--recorded-records 2000] [--cell-records 3000]
        [--cell-trees 20] [--order-depths 4 6] [--sweeps 30]

A row for each question: the best easy attack, the audit's best, and the difference. `beaten_labels.py` has those on
labels, `beaten_groups.py` those that group records, `beaten_recorded.py` both on the transcript of a real federation,
and `beaten_columns.py` those on columns, with the links given to both. Of a larger table as many records are drawn:
--records for labels and groups, --recorded-records for a federation, --cell-records for columns.

--workdir keeps the rows of each finished table and kind, which the same options do not work on again; after a change of
an attack remove it. breast_cancer comes with scikit-learn, loans with the project; the others need TREETAP_DATA, and
are skipped without. Ends with status 1 where an easy attack is better by more than its row allows: .01 of AUC,
V-measure or accuracy, 2 points of cells, .02 of R². Needs the `audit` extra. All takes some 14 CPU minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent / "reproductions"))

from beaten_columns import columns_rows
from beaten_groups import groups_rows
from beaten_labels import WAYS, labels_rows
from beaten_recorded import recorded_rows
from beaten_tables import SETS, Row, Table, absent, table_of
from resumable import Results

from treetap import terminal

#: Kind of question → its rows of a table by name, and the option with its records; a further kind is an entry here.
KINDS: dict[str, tuple[Callable[[str, Table, argparse.Namespace], Iterator[Row]], str]] = {
    "labels": (labels_rows, "records"),
    "groups": (groups_rows, "records"),
    "recorded": (recorded_rows, "recorded_records"),
    "columns": (columns_rows, "cell_records"),
}


def main() -> int:
    """Measure, print, and judge; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), metavar="NAME")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS), metavar="KIND")
    parser.add_argument("--workdir", type=Path, help="folder that keeps the rows of finished tables")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), metavar="NAME", help="of labels")
    parser.add_argument("--records", type=int, default=5000, help="of a table, at most, drawn: labels and groups")
    parser.add_argument("--trees", type=int, default=10, help="labels, groups and federations")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--recorded-records", type=int, default=2000, help="of a table, at most, drawn: federations")
    parser.add_argument("--cell-records", type=int, default=3000, help="of a table, at most, drawn: columns")
    parser.add_argument("--cell-trees", type=int, default=20, help="columns")
    parser.add_argument("--order-depths", type=int, nargs="+", default=[4, 6], metavar="DEPTH", help="of merged bins")
    parser.add_argument("--sweeps", type=int, default=30, help="of the sampler of noised sums")
    given = parser.parse_args()
    kept = None if given.workdir is None else Results(given.workdir / "beaten.jsonl")
    found = list[dict[str, Any]]()
    for name in given.sets:
        if (reason := absent(name)) is not None:
            print(f"{name}: skipped: {reason}", file=sys.stderr)
            continue
        for kind in given.kinds:
            found += rows_of(name, kind, given, kept)
    if given.as_json:
        print(json.dumps(found, indent=1))
    else:
        report(found)
    beaten = [row for row in found if row["difference"] > row["allowed"]]
    for row in beaten:
        print(
            f"{row['set']}, {row['way']}, {row['holder']}: {row['question']}: {row['easy']} beats the audit",
            file=sys.stderr,
        )
    return int(bool(beaten))


def rows_of(name: str, kind: str, given: argparse.Namespace, kept: Results | None) -> list[dict[str, Any]]:
    """The rows of a table, kept or found now."""
    # what is asked for of other tables, and how it is printed, changes no row
    asked = {key: value for key, value in vars(given).items() if key not in ("sets", "kinds", "workdir", "as_json")}
    trial = {"set": name, "kind": kind, **asked}
    if kept is not None and (before := kept.get(trial)) is not None:
        rows: list[dict[str, Any]] = before["rows"]
        return rows
    compare, records = KINDS[kind]
    found, begun = list[dict[str, Any]](), used()
    with threadpool_limits(1):
        for row in compare(name, table_of(name, asked[records]), given):
            found.append(
                {
                    "set": name,
                    "way": row.way,
                    "holder": row.holder,
                    "question": f"{kind}, {row.question}, {row.measure}",
                    "measure": row.measure,
                    "easy": row.easy.name,
                    "easy_figure": row.easy.figure,
                    "audit": row.audit.name,
                    "audit_figure": row.audit.figure,
                    "difference": row.easy.figure - row.audit.figure,
                    "allowed": row.allowed,
                    "easy_every": row.easy.every,
                    "audit_every": row.audit.every,
                    "cpu_s": used() - begun,
                }
            )
            begun = used()
    if kept is not None:
        kept.add({"trial": trial, "rows": found})
    return found


def used() -> float:
    """Processor seconds of this process and of those that it has waited for, the parties of a federation."""
    return sum(os.times()[:4])


def report(found: list[dict[str, Any]]) -> None:
    """The rows for a person."""
    shown = terminal.table("set", "way", "labels at", "question", "easy attack", "", "audit's", "", "difference")
    for row in found:
        figures = (row["easy"], f"{row['easy_figure']:.3f}", row["audit"], f"{row['audit_figure']:.3f}")
        shown.add_row(row["set"], row["way"], row["holder"], row["question"], *figures, f"{row['difference']:+.3f}")
    terminal.out.print(shown)
    terminal.out.print(f"{sum(row['cpu_s'] for row in found):.0f} s of a processor")


if __name__ == "__main__":
    sys.exit(main())
