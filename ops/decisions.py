"""Commands on the decision log in a label holder's own state folder: `list`, `count` and `export`.

They check every line that they read, and may run while the party serves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treetap.commands.options import Json, from_dataclasses, option, print_json, reading
from treetap.errors import BadInput, visible

if TYPE_CHECKING:
    from treetap.models.line_file import Line

decisions = typer.Typer(
    help="What a label holder that serves has answered to whom, and what it refused: its decision log.",
    no_args_is_help=True,
)
Config = Annotated[Path, typer.Option(metavar="FILE", help="The label holder's own configuration file.")]
#: Lines of an export that are in memory at a time.
AT_ONCE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Options that choose lines."""

    day: str = option("", "Those of a day (UTC), as 2026-01-31.")
    client: str = option("", "Those of a client, by its certificate's name.")
    id: str = option("", "Those about a record, by its id as clients write it; the key in the state folder finds it.")


@contextmanager
def _chosen(config: Path, filters: Filters) -> Iterator[Iterator[Line]]:
    """The lines that filters choose, in order."""
    from treetap.party.config import read
    from treetap.party.runtime.job_store import DECISIONS
    from treetap.party.serving.decisions import KEY_FILE, decisions_of, hashed, key_of
    from treetap.tables.normalised import normaliser

    party = read(config)
    folder = party.state / DECISIONS
    try:
        day = filters.day and date.fromisoformat(filters.day).isoformat()
    except ValueError:
        raise BadInput(f"--day {filters.day}: is no day; write it as 2026-01-31") from None
    with reading(folder):
        if not (folder / KEY_FILE).exists():
            raise BadInput(
                f"{folder}: has no decision; {party.name} notes them while it serves with decision_days under [serve]"
            )
        key, rules = key_of(folder), party.id_rules()
        forms = {filters.id, *(normaliser(rule)(filters.id) for rule in rules)} if filters.id else set()
        wanted = {hashed(key, form) for form in forms}
        yield (
            line
            for line in decisions_of(party.state, day)
            if filters.client in ("", line["client"]) and (not wanted or not wanted.isdisjoint(line["ids"]))
        )


@decisions.command("list")
@from_dataclasses
def list_decisions(config: Config, filters: Filters, as_json: Json = False) -> None:
    """Print a line for each decision: number, time, client, outcome, prediction and scores, model, job.

    An outcome is predicted, unknown_id, not_common (a partner lacks the record: lacked_by), queries_spent (spent_by),
    or why the request was refused: refused (the client may not ask), malformed, unknown_model, not_served, queue_full,
    late. Ids are not shown, since the log has their hashes alone; --id finds the lines of one. --json has all fields.

    treetap decisions list --config bank.toml --id C26539
    """
    with _chosen(config, filters) as lines:
        if as_json:
            print_json(list(lines))
            return
        for line in lines:
            named = [f"{key}={_text(line[key])}" for key in _NAMED if line.get(key)]
            cells = *(line[key] for key in _FIRST), *line["scores"], *named, line["model"], line["job"]
            # a partner names columns as it likes: no name begins a line
            typer.echo(visible(" ".join(str(cell) for cell in cells if cell not in ("", None))))


#: Fields that a printed line begins with, and those that it has only where they say something.
_FIRST = ("n", "at", "client", "status", "prediction")
_NAMED = ("reasons", "lacked_by", "spent_by", "away", "forgotten")


@decisions.command("count")
@from_dataclasses
def count(config: Config, filters: Filters, as_json: Json = False) -> None:
    """Count decisions by day, client, model and outcome, and check the whole log.

    The number and checksum of the last line are printed too: noted elsewhere, they show later that nothing before it
    was cut off, taken out or changed since, but for what treetap forget notes in the ledger.

    treetap decisions count --config bank.toml
    """
    counts: Counter[tuple[str, ...]] = Counter()
    last: Line = {}
    with _chosen(config, filters) as lines:
        for last in lines:
            counts[last["at"][:10], last["client"], last["model"], last["status"]] += 1
    rows = [dict(zip(_COUNTED, (*key, number), strict=True)) for key, number in sorted(counts.items())]
    head = {key: last[key] for key in ("n", "sha256") if last}
    if as_json:
        print_json({"decisions": counts.total(), "counts": rows, "last": head})
        return
    from treetap import terminal

    terminal.print_table(_COUNTED, (row.values() for row in rows))
    if head:
        typer.echo(f"{counts.total()} decisions; the last one is number {head['n']}, sha256 {head['sha256']}")


_COUNTED = ("day", "client", "model", "status", "decisions")


@decisions.command("export")
@from_dataclasses
def export(
    out: Annotated[Path, typer.Argument(metavar="FILE", help="A .csv or .parquet file.")],
    config: Config,
    filters: Filters,
) -> None:
    """Write decisions to a CSV or Parquet file, a row each, with all fields; of several ids or scores one cell.

    treetap decisions export decisions.parquet --config bank.toml --day 2026-01-31
    """
    import pyarrow as pa

    from treetap.models.durable import writing_whole
    from treetap.party.serving.decisions import COLUMNS
    from treetap.tables.written import table_writer

    form = out.suffix.removeprefix(".")
    if form not in ("csv", "parquet"):
        raise BadInput(f"{out}: end the file's name with .csv or .parquet")
    schema = pa.schema([(name, pa.string()) for name in (*COLUMNS, "sha256")])
    rows = 0
    with _chosen(config, filters) as lines, writing_whole(out) as file, table_writer(file, schema, form) as write:
        while part := list(islice(lines, AT_ONCE)):
            cells = [{key: _text(value) for key, value in line.items() if value is not None} for line in part]
            write(pa.Table.from_pylist(cells, schema))
            rows += len(part)
    typer.echo(f"{out}: {rows} decisions")


def _text(value: Any) -> str:
    """A field as text: several values side by side."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
