"""Commands of the laboratory: a demo, experiments and frontiers on one machine, and a model for XGBoost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from treetap import logs
from treetap.commands.options import Json, needs, reading
from treetap.errors import BadInput
from treetap.lab import servers
from treetap.process.limits import import_numpy, leave_out_pandas


def demo(
    as_json: Json = False,
    workdir: Annotated[Path | None, typer.Option(help="Keep everything here; without it, a temporary folder.")] = None,
    scheme: Annotated[str, typer.Option(help="Of encrypted sums: paillier, or lattice (boosting).")] = "paillier",
    key_bits: Annotated[
        int | None, typer.Option(help="Length of the key; Paillier's: 1024 (quick look), 2048 or 3072.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="The page about what was learned; without it in --workdir, else runs/demo-PROTOCOL.html."),
    ] = None,
    protocol: Annotated[
        str, typer.Option(help="boosting, splitnn: one party has all labels. pivodl: each of four has some.")
    ] = "boosting",
    details: Annotated[
        bool,
        typer.Option("--details", help="Also print metrics, times, bytes by receiver and each attack's figures."),
    ] = False,
) -> None:
    """A whole federation on this machine: one process per party, mutual TLS, breast cancer data split by columns.

    Trains, predicts, and says what federating gains and what each party learned of the others' labels and columns.
    `ps -e` shows each process by its party's name.
    """
    logs.quiet_grpc()
    servers.begin()
    leave_out_pandas()
    import_numpy()
    with needs("demo"):
        from treetap.lab.demo import run

    run(
        protocol,
        as_json=as_json,
        details=details,
        workdir=workdir,
        report=report,
        scheme=scheme,
        key_bits=key_bits,
    )


def experiment(
    file: Annotated[Path, typer.Argument(metavar="EXP.toml", help="Data, parties and job; see docs/experiment.md.")],
    as_json: Json = False,
    workdir: Annotated[
        Path | None, typer.Option(help="Keep results, tables, states and logs here; without it in runs/EXP.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the runs that this folder lacks.")] = None,
    discard: Annotated[bool, typer.Option("--discard", help="Keep no file.")] = False,
    keep_keys: Annotated[
        bool, typer.Option("--keep-keys", help="Keep the private keys of the authority and the processes too.")
    ] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Also write each run's model as XGBoost's JSON, models/RUN.json.")
    ] = False,
    details: Annotated[
        bool, typer.Option("--details", help="Also print costs, and every attack of the audit.")
    ] = False,
) -> None:
    """Split one table between parties and run the federation on it, once per seed and fold; keep the results."""
    logs.quiet_grpc()
    servers.begin()
    import_numpy()
    leave_out_pandas()
    from treetap.lab.experiment.command import run_file

    run_file(
        file,
        as_json=as_json,
        workdir=workdir,
        resume=resume,
        discard=discard,
        keep_keys=keep_keys,
        export=export,
        details=details,
    )


def frontier(
    file: Annotated[
        Path,
        typer.Argument(metavar="EXP.toml", help="An experiment file; docs/measure.md."),
    ],
    as_json: Json = False,
    trainer: Annotated[
        Literal["centralised", "federation"],
        typer.Option(
            help="centralised: the same trees on the joined table, without sockets and encryption; or federation."
        ),
    ] = "centralised",
    workdir: Annotated[
        Path | None, typer.Option(help="Trainings, frontier.json and frontier.html; without it in runs/EXP.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the trainings that this folder lacks.")] = None,
) -> None:
    """Train with defences of the label at several strengths; say which to take, beside the label holder alone.

    Tables [[defence]] of the file name them, as id_lmid = { xi = [0.1, 0.5] } or label_dp = { epsilon = [0.5, 1] };
    without one the usual values are measured. Each is one training for every seed of the table data. A finished
    training is kept.
    """
    logs.quiet_grpc()
    with needs("audit"):
        from treetap.lab.experiment.frontier import run_file

    run_file(file, as_json=as_json, trainer=trainer, workdir=workdir, resume=resume)


def model_xgboost(
    name: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="Folder of an experiment's run, or of a label holder's published model."),
    ],
    out: Annotated[Path, typer.Option(help="The file to write, such as model.json.")],
    config: Annotated[
        Path | None, typer.Option(help="The label holder's configuration file: MODEL is the name of a model there.")
    ] = None,
    table: Annotated[
        str | None,
        typer.Option(help="With --config: the table on which it was trained, by which thresholds are rounded."),
    ] = None,
) -> None:
    """Write a model as XGBoost's JSON: all parts of an experiment's run, or a label holder's that stands alone.

    treetap model xgboost runs/credit/seed-0 --out model.json
    """
    from treetap.commands.model.view import find
    from treetap.lab.experiment.xgboost_export import export_alone, export_run, trained_table

    if config is None and table is not None:
        raise BadInput("--table names a table of the label holder's configuration: add --config, or leave it out")
    with reading(Path(name)):
        if config is None and not (Path(name) / "manifest.json").is_file():
            parties = export_run(Path(name), out)
            typer.echo(f"{out}: the model of {', '.join(parties)}")
            return
        party = export_alone(find(name, config), trained_table(config, table), out)
    more = "" if table else "; thresholds are right for values of 32 bits: --config and --table round them by all"
    typer.echo(f"{out}: the part of {party}, which stands alone{more}")


def measure_epsilon(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Mechanisms to measure: tables [[measure]].")],
    as_json: Json = False,
    workdir: Annotated[
        Path | None,
        typer.Option(help="Finished runs and epsilon.json; without it in runs/FILE."),
    ] = None,
    details: Annotated[
        bool,
        typer.Option("--details", help="Also print each way to a bound, with the rates behind it, and the modules."),
    ] = False,
) -> None:
    """Measure by canaries how private noise is at best: a lower bound of ε, beside what is claimed.

    The party's own code runs on two neighbours, of which one has a canary of drawn signs and places. An attacker, who
    has measured how the noise of all numbers goes together, tells them apart; in one run many canaries are there or not
    by a coin. A file:

    [[measure]]
    mechanism = "label_dp"    # also: epsilon, stages, classes
    epsilon = 1.0
    runs = 2000               # of the game; 0: none
    canaries = 2000           # of the one run; 0: none

    Further mechanisms: "pivodl" (epsilon, delta, clip, learning_rate, n_estimators, max_depth, as_published: keys of
    the job), "dp_sgd" (noise, clip, epochs: keys of the feature party) and "column_privacy" (epsilon, delta, trees;
    max_depth, bins, scheme; forest = true: of a forest). --details names the modules that were carried out. Above the
    tables: seed, limit_s = 600 (no further runs begin after these seconds; the same command goes on), confidence = 0.95
    of what is shown, false_alarm = 1e-6.

    A bound says that ε is no smaller, never that it is no greater: an attack that nobody has tried may do better.

    Exit status 1 if ε is greater than claimed; honest noise is accused with probability false_alarm at most.

    treetap measure-epsilon noise.toml --details
    """
    with needs("audit"):
        from treetap.lab.epsilon.measuring import document, measured, print_result

    asked, results = measured(file, workdir or Path("runs", file.stem))
    if as_json:
        print(json.dumps(document(asked, results), indent=1, allow_nan=False), flush=True)
    else:
        for result in results:
            print_result(asked, result, details=details)
    if any(result.broken for result in results):
        raise typer.Exit(1)
