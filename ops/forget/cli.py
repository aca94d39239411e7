"""`treetap forget`: a party forgets records of persons, and says what it cannot reach.

For the party's own people. The party is stopped meanwhile.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treetap.commands.options import Json, print_json, reading

if TYPE_CHECKING:
    from treetap.ops.forget.forgetting import Forgotten


def forget(
    config: Annotated[Path, typer.Option(metavar="FILE", help="The party's own configuration file.")],
    ids: Annotated[
        Path, typer.Option(metavar="FILE", help="Ids to forget: one a line, or the first column of a table.")
    ],
    remove_transcripts: Annotated[
        bool,
        typer.Option("--remove-transcripts", help="Also remove transcripts in which clients asked for one by id."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be forgotten, change nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Forget persons: take their records out of this party's state folder, and name what that does not reach.

    Reached are predictions, previews, scores, the link of transcripts to rows of the table, hashes of ids, counts of
    queries, and noisy labels. Not reached, and named: models, partners, back-ups, your own tables. Of several id
    columns an id is the text of each after its length in bytes and a colon: 1:a2:bc.

    Stop the party and end its unfinished jobs first. After an interruption run the same command again. The ledger notes
    how many ids, when, and which transcripts went; nothing more.

    treetap forget --config bank.toml --ids gone.txt --dry-run
    """
    from treetap.ops.forget.forgetting import forget as forgotten
    from treetap.party.config import read
    from treetap.process.lifecycle import sole_user
    from treetap.tables.reading import read_ids

    party = read(config)
    gone = read_ids(ids)
    with sole_user(party.state), reading(party.state):
        outcome = forgotten(party, gone, dry=dry_run, transcripts=remove_transcripts)
    if as_json:
        print_json(outcome.plain())
        return
    _show(outcome)


def _show(outcome: Forgotten) -> None:
    from treetap import terminal

    table = terminal.table("file", "kind", "records", "also")
    for place, (kind, records, also) in outcome.files.items():
        table.add_row(*map(terminal.text, (place, kind, str(records), also)))
    terminal.out.print(table)
    for job in outcome.removed:
        terminal.out.print(terminal.text(f"transcripts/{job}: removed"), soft_wrap=True)
    done = "would be forgotten" if outcome.dry else "are forgotten"
    said = f"{outcome.party}: {outcome.ids} ids {done}, in {len(outcome.files)} files. Not reached:"
    terminal.out.print(terminal.text(said), soft_wrap=True)
    for what, why in outcome.not_reached.items():
        terminal.out.print(terminal.text(f"- {what}: {why}"), soft_wrap=True)
