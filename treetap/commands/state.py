"""`treetap state`: the key that encrypts a party's state folder, and the export of transcripts in clear."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treetap.commands.options import Json, reading

state = typer.Typer(help="The key of a party's own state folder.", no_args_is_help=True)
Config = Annotated[Path, typer.Option(metavar="FILE", help="The party's own configuration file.")]


@state.command()
def rotate(config: Config) -> None:
    """Encrypt a stopped party's state with its state_key, from former_state_key or from clear.

    Without state_key it is written in clear. After an interruption the same command goes on; the party starts only when
    it has ended. Blocks of a disk, and back-ups, keep what was there before.

    treetap state rotate --config bank.toml
    """
    from party.config import read
    from party.runtime.state_key import key_of
    from party.runtime.state_rotation import rotate as change
    from treetap.errors import BadInput, Malformed
    from treetap.process.lifecycle import sole_user

    party = read(config)
    former = party.former_state_key
    key = None if party.seal is None else party.seal.key
    with sole_user(party.state), reading(party.state):
        try:
            written = change(party.state, key, None if former is None else key_of(former, "former_state_key"))
        except Malformed as damage:  # of the party's own file
            raise BadInput(f"{damage}; or move it away, and run the same command again") from None
    whose = "in clear" if key is None else f"encrypted with state key {key.id.hex()}"
    typer.echo(f"{party.state}: {written} files written; all that it holds of records is {whose}")
    if former is not None:
        typer.echo("leave former_state_key out of the configuration now, and keep that key for back-ups")


@state.command()
def export(
    folder: Annotated[Path, typer.Argument(help="A new folder for the files.")],
    config: Config,
    job: Annotated[str, typer.Option("--transcripts", metavar="JOB", help="The job whose transcript it is.")],
    as_json: Json = False,
) -> None:
    """Write a job's transcript in clear for an auditor: its chain and signatures verify as before.

    treetap state export for-auditor --config bank.toml --transcripts churn
    """
    from party.config import read
    from party.runtime.state_rotation import export_transcripts
    from treetap.errors import BadInput, Malformed

    party = read(config)
    with reading(party.state):
        try:
            files = export_transcripts(party.state, party.seal, job, folder)
        except Malformed as damage:
            raise BadInput(str(damage)) from None
    if as_json:
        import json

        print(json.dumps({"files": [str(path) for path in files]}), flush=True)
        return
    typer.echo(f"{folder}: {len(files)} files; give their reader the federation's ca.crt too")
