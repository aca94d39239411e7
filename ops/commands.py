"""Commands of operation: pages for people, a relay, a gateway, a check of a process, `treetap forget`, evidence.

A party forgets records of persons, and says what it cannot reach: for its own people, while it is stopped.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treetap import logs
from treetap.commands.options import Json, LogFormat, LogLevel, UntilStdinCloses, needs, print_json, reading
from treetap.errors import BadInput, refuse
from treetap.process.limits import hold_hangup

if TYPE_CHECKING:
    from treetap.ops.forget.forgetting import Forgotten


def console(
    approver: Annotated[
        Path, typer.Option(envvar="TREETAP_APPROVER", help="The party to call, the certificate to use, the address.")
    ] = Path("approver.toml"),
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Serve pages for one of a party's people: what goes on there, and the jobs to decide about.

    Prints a token that opens the pages once, within 60 s; after SIGHUP another one.
    """
    in_terminal = hold_hangup()
    logs.configure(log_level, log_format)  # before other imports, as of a party
    with needs("console"):
        from treetap.ops.console.listening import run

    run(approver, until_stdin_closes=until_stdin_closes, in_terminal=in_terminal)


def relay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The relay's configuration file.")],
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Serve a relay until SIGTERM: one public port for processes that can only dial out. It opens no TLS but its own.

    treetap relay relay.toml
    """
    logs.configure(log_level, log_format)
    from treetap.ops.relay.command import run

    run(file, until_stdin_closes=until_stdin_closes)


def gateway(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The gateway's configuration file.")],
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    until_stdin_closes: UntilStdinCloses = False,
) -> None:
    """Serve a gateway until SIGTERM: clients ask it over HTTP, and it asks the party. It has no table, label or key.

    treetap gateway gateway.toml
    """
    logs.configure(log_level, log_format)
    with needs("serve"):
        from treetap.ops.gateway.http import run

    run(file, until_stdin_closes=until_stdin_closes)


def doctor(
    config: Annotated[
        Path | None,
        typer.Option(help="A party's, a coordinator's or another process's configuration file."),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.zip", help="Write an archive for those who help: no id, cell, label, key or column."
        ),
    ] = None,
    log: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="With --bundle: a log of the process. May be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a process: certificates, addresses, clocks, versions, tables, folders; without --config the kernels.

    Exit status 2 if there is a fault.

    treetap doctor --config bank/party.toml
    treetap doctor --config bank/party.toml --bundle support.zip --log bank.log
    """
    refuse((bool(log) and bundle is None, "--log goes with --bundle"), kind=BadInput)
    logs.quiet_grpc()
    from treetap.ops.doctor.configuration import run

    run(config, bundle, log or (), as_json=as_json)


def forget(
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="The party's own configuration file.")] = None,
    ids: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Ids to forget: one a line, or the first column of a table.")
    ] = None,
    remove_transcripts: Annotated[
        bool,
        typer.Option("--remove-transcripts", help="Also remove transcripts in which clients asked for one by id."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be forgotten, change nothing.")] = False,
    retrain: Annotated[
        Path | None, typer.Option(metavar="JOB.toml", help="Instead: train a model again, whose job file this is.")
    ] = None,
    name: Annotated[str, typer.Option(help="Of --retrain: the new model; without it, a name is made up.")] = "",
    operator: Annotated[
        Path,
        typer.Option(envvar="TREETAP_OPERATOR", help="Of --retrain: the coordinator to call, and the certificate."),
    ] = Path("operator.toml"),
    as_json: Json = False,
) -> None:
    """Forget persons: take their records out of this party's state folder, and name what that does not reach.

    Reached are predictions, previews, scores, the link of transcripts to rows of the table, hashes of ids, also of
    decisions, counts of queries, and noisy labels. Not reached, and named: models, partners, back-ups, your own tables.
    Of several id columns an id is the text of each after its length in bytes and a colon: 1:a2:bc.

    Stop the party and end its unfinished jobs first. After an interruption run the same command again. The ledger notes
    how many ids, when, and which transcripts went; nothing more.

    treetap forget --config bank.toml --ids gone.txt --dry-run

    treetap forget --retrain credit.toml --name credit-2

    The second line is an operator's, once the records are out of the tables too: the job that made model credit runs on
    these, and its measures are compared with those of credit. Each party deletes its part of credit once credit-2 opens
    to predict or serve, and refuses while a job uses it. Every policy must name operators, or have approval = "manual".
    """
    if retrain is not None:
        if config is not None or ids is not None or remove_transcripts or dry_run:
            raise BadInput("--retrain: is an operator's, and takes no records out; give it with --name and --operator")
        from treetap.commands.jobs.cli import submit

        submit(retrain, operator, detach=False, check=False, as_json=as_json, again=name)
        return
    if config is None or ids is None:
        raise BadInput("--config, --ids: give both; or --retrain, and the file of a job")
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


def evidence(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Name of a published model in the party's state folder.")
    ],
    config: Annotated[Path, typer.Option(metavar="FILE", help="The party's own configuration file.")],
    experiment: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of an experiment, or of an intruder test, whose attacks are told."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where all goes; without it evidence/MODEL. It is not there yet."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a folder of evidence about a model, for data protection, model risk and auditors: facts with their sources.

    A data-protection annex (what was sent to whom by class and bytes, limits, approvals, a motivated intruder test), a
    model card in the order of the AI Act's Annex IV, NIST SP 800-226's questions for every ε, the installed packages
    (CycloneDX), digests of the model's files, and this party's signature. What its state does not back is not said: the
    heading is there, without a sentence. No id, label, cell or key is in it; nothing leaves this host.

    treetap evidence credit --config bank.toml --experiment runs/exp

    openssl dgst -sha256 -verify <(openssl x509 -in signer.pem -pubkey -noout) -signature SHA256SUMS.sig SHA256SUMS
    """
    from treetap.ops.evidence.folder import write_evidence

    written = write_evidence(config, model, out or Path("evidence") / Path(model).name, experiment)
    if as_json:
        print_json(written)
        return
    from treetap import terminal

    signed = "signed" if written["signed"] else "not signed: the party has no certificate"
    said = f"{written['folder']}: {len(written['files'])} files, {written['facts']} facts, {signed}"
    terminal.out.print(terminal.text(said), soft_wrap=True)
    for heading in written["not_recorded"]:
        terminal.out.print(terminal.text(f"- not recorded: {heading}"), soft_wrap=True)


def _show(outcome: Forgotten) -> None:
    from treetap import terminal

    terminal.print_table(("file", "kind", "records", "also"), ((place, *said) for place, said in outcome.files.items()))
    for job in outcome.removed:
        terminal.out.print(terminal.text(f"transcripts/{job}: removed"), soft_wrap=True)
    done = "would be forgotten" if outcome.dry else "are forgotten"
    unseen = "" if outcome.files else ": none has one, look how the table writes ids"
    said = f"{outcome.party}: {outcome.ids} ids {done}, in {len(outcome.files)} files{unseen}. Not reached:"
    terminal.out.print(terminal.text(said), soft_wrap=True)
    for what, why in outcome.not_reached.items():
        terminal.out.print(terminal.text(f"- {what}: {why}"), soft_wrap=True)
