"""`treetap audit` and `treetap attack`: the information about labels, and about columns, in transcripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from treetap.errors import BadInput, Malformed

Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON on standard output and nothing else.")]
Revoked = Annotated[
    Path | None,
    typer.Option(help="The authority's crl.pem, with --ca: signatures made after a revocation are refused."),
]


def audit(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN", help="A folder that holds audit.toml, such a file, or an experiment's folder."),
    ],
    as_json: Json = False,
    html: Annotated[
        Path | None, typer.Option(help="File of the report; by default audit.html beside audit.toml.")
    ] = None,
    document: Annotated[Path | None, typer.Option(help="Also write the report as JSON here.")] = None,
    job: Annotated[str | None, typer.Option(help="Name of the job, where the transcripts hold several.")] = None,
    ca: Annotated[
        Path | None, typer.Option(help="The federation's ca.crt, to verify the transcripts' signatures.")
    ] = None,
    revoked: Revoked = None,
    frontier: Annotated[
        Path | None, typer.Option(help="What treetap frontier wrote as frontier.json: the advice is by its figures.")
    ] = None,
    attacks: Annotated[str | None, typer.Option(help="Names, with commas between; see treetap attack --help.")] = None,
    last_tree_only: Annotated[
        bool, typer.Option(help="Skip the figures after the first tree, the first two, ….")
    ] = False,
    fail_above: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMIT=V",
            help="Exit with 1 above it; may be repeated. any: V-measure of every attack but cl; an attack's name: its "
            "own; accuracy: of every attack but cl; information: share of the label's entropy that all nodes tell; "
            "label_guess, of pivodl: AUC of the guess of other parties' labels; gradient-clusters and gradient-labels, "
            "of splitnn: V-measure, and share of labels named right; attributes, decode, match and match-exact, of a "
            "label holder: accuracy or R² of any column, SSIM of images or share of the mean record's error removed.",
        ),
    ] = None,
    allow_partial: Annotated[
        bool, typer.Option(help="Let --fail-above judge transcripts that end before their job does, or lack trees.")
    ] = False,
) -> None:
    """Attack every feature party's transcript, and report what each of them could infer.

    RUN/audit.toml names the transcripts, the parties' own tables, and the labels that score the attacks:
    docs/audit.md. Of a split network the label holder is an attacker too, on the columns of each feature party that
    the file names as [[victim]]. `treetap demo --workdir` leaves one, and an experiment with an [audit] table, of which
    all runs are audited.

    treetap audit runs/demo/federation --fail-above any=0.4
    """
    with needs("audit"):
        from attacks import audited_runs
        from attacks import limits as gate
        from treetap.commands.audit.audited import Asked, audit_runs
    asked = Asked(
        limits=gate.parse(fail_above or []),
        attacks=attacks,
        more={"job": job, "ca": ca, "revoked": revoked, "frontier": frontier},
        by_tree=not last_tree_only,
        allow_partial=allow_partial,
    )
    runs = audited_runs.audited_runs(run)
    with _damage():
        above = audit_runs(runs, asked, as_json=as_json, html=html, document=document)
    if above:
        raise typer.Exit(1)


def attack(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="cl, uni, uni+cl, id2graph, id2graph-chunked or id2graph-quotient; of pivodl also label_guess, "
            "gain_inversion, differential or disclosed; of splitnn cl, gradient-clusters, gradient-labels, norm, "
            "cosine or completion; of a prediction path-decoding or prediction-inversion.",
        ),
    ],
    transcript: Annotated[
        Path, typer.Argument(help="A transcript's folder, a state folder, a .tap file or an archive of any.")
    ],
    columns: Annotated[Path | None, typer.Option(help="The attacker's own table, CSV or Parquet.")] = None,
    use: Annotated[list[str] | None, typer.Option(help="Only this column of it; may be repeated.")] = None,
    id_column: Annotated[str, typer.Option("--id", help="The table's id column.")] = "id",
    classes: Annotated[int | None, typer.Option(help="Number of groups to look for.")] = None,
    job: Annotated[str | None, typer.Option(help="Name of the job, where the transcript holds several.")] = None,
    ca: Annotated[
        Path | None, typer.Option(help="The federation's ca.crt, to verify the transcript's signatures.")
    ] = None,
    revoked: Revoked = None,
    party: Annotated[str | None, typer.Option(help="Name of the transcript's party, if it is not in it.")] = None,
    received_only: Annotated[
        bool, typer.Option(help="Use messages alone, without own splits and set differences.")
    ] = False,
    drawn_only: Annotated[
        bool, typer.Option(help="Of each leaf use only the records that its tree drew, if the protocol draws records.")
    ] = False,
    discount: Annotated[
        float | None,
        typer.Option(help="Weight of each further tree; by default 0.6 of trees in sequence, else 1."),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Weight of communities against own features.")] = 3.0,
    chunk_size: Annotated[int, typer.Option(help="B: records per chunk.")] = 1000,
    chunk_weight: Annotated[float, typer.Option(help="w': weight of the edge between chunks.")] = 100.0,
    chunk_edges: Annotated[
        str, typer.Option(help="paper (as printed: a chunk's edge joins it to itself) or linked.")
    ] = "paper",
    seed: Annotated[int, typer.Option(help="Of Louvain and k-means.")] = 0,
    labels: Annotated[
        Path | None, typer.Option(help="A table with the same ids and the labels, to score against.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="The label's column in it.")] = None,
    label_id: Annotated[str | None, typer.Option(help="The id column in it; by default as --id.")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Folder of the attacker's published model, of splitnn: state/models/JOB.")
    ] = None,
    known_labels: Annotated[
        Path | None,
        typer.Option(
            help="A table with ids and the column of --label, of splitnn: labels that the attacker is assumed to know. "
            "Without it some of --labels."
        ),
    ] = None,
    known: Annotated[int, typer.Option(help="Number of labels that the attacker is assumed to know, of splitnn.")] = 40,
    predictions: Annotated[Path | None, typer.Option(help="File of predictions whose scores are attacked.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write id and guessed group of every record here, as Parquet.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run one attack on one party's transcript: sort the records into groups that should share a label.

    \b
    cl                 k-means on the attacker's own features: what it knows without the protocol
    uni                union-find over the attacker's leaves
    uni+cl             k-means on own features and the groups of uni
    id2graph           communities of the graph of records that share leaves, then k-means
    id2graph-chunked   the same in chunks, as the paper does for many records
    id2graph-quotient  the same with records in the same leaves merged: same modularity, any number of records

    Of a job of splitnn, from the gradients that the party was sent, and its own model:

    \b
    gradient-clusters  k-means on the directions of gradients, without a label
    gradient-labels    labels of all training records from gradients and few known labels
    norm, cosine       two classes: length and direction of single gradients
    completion         a head on the party's published model, beside models that need no federation

    Of a job of pivodl also, without groups:

    \b
    label_guess        sign of the leaf weights that the party received, over records that it does not label
    gain_inversion     exact leaf weights from announced gains
    differential       labels from sums over sets that differ in few records
    disclosed          counts of what the messages disclose: bins, records of nodes, sums

    Of a prediction, by the recipient of its scores, with --job, --model, --columns and --predictions:

    \b
    path-decoding         of eini and lattice: the leaves behind each score, by the weights that the label holder knows
    prediction-inversion  of masked: exact leaf weights from scores, and then the leaves

    treetap attack id2graph-quotient feature-b/transcripts/job --columns b.parquet --classes 2
    """
    with needs("audit"):
        from attacks import run
        from attacks.registry import row
    if (labels is None and known_labels is None) != (label is None):
        raise BadInput("--label COLUMN and --labels FILE, or --known-labels FILE, go together")
    typed = {
        "alpha": alpha,
        "chunk_size": chunk_size,
        "chunk_weight": chunk_weight,
        "chunk_edges": chunk_edges,
        "seed": seed,
        "known": known,
        **({} if discount is None else {"discount": discount}),
    }
    schema = row(name).settings
    task = run.Task(
        name=name,
        transcript=transcript,
        job=job,
        ca=ca,
        revoked=revoked,
        party=party,
        table=columns,
        use=use,
        id=id_column,
        classes=classes,
        received_only=received_only,
        drawn_only=drawn_only,
        labels=None if labels is None or label is None else (labels, label, label_id or id_column),
        settings={} if schema is None else {it.name: typed[it.name] for it in fields(schema) if it.name in typed},
        model=model,
        known=None if known_labels is None or label is None else (known_labels, label, label_id or id_column),
        predictions=predictions,
    )
    if out is not None and not out.parent.is_dir():
        raise BadInput(f"--out {out}: there is no folder {out.parent}")
    if out is not None and not row(name).groups:
        raise BadInput(f"--out writes groups of records, which attack {name} does not; leave it out")
    with _damage():
        done = run.run(task)
    if out is not None:
        run.write(done, out)
    if as_json:
        print(json.dumps(done.report, indent=1), flush=True)
    else:
        run.show(done, out)


@contextmanager
def _damage() -> Iterator[None]:
    """Report a changed transcript as bad input; exit status 1 is for figures above a limit."""
    try:
        yield
    except Malformed as fault:
        raise BadInput(str(fault)) from None


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Imports of packages that come with an extra: `BadInput` names the extra if a package is missing."""
    try:
        yield
    except ImportError as missing:
        raise BadInput(f"{missing.name} is not installed: pip install 'treetap[{extra}]'") from None


def register(app: typer.Typer) -> None:
    """Register the two commands."""
    options: dict[str, Any] = {"rich_help_panel": "Audit"}
    app.command(**options)(audit)
    app.command(**options)(attack)
