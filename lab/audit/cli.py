"""`treetap audit` and `treetap attack`: the information about labels, and about columns, in transcripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from treetap.commands.options import Json, from_dataclasses, needs
from treetap.errors import BadInput, Malformed
from treetap.lab.audit.options import (
    AttackerOptions,
    AuditOptions,
    LabelOptions,
    PublishedOptions,
    SettingOptions,
)


@from_dataclasses
def audit(
    asked: AuditOptions,
    published: PublishedOptions,
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A folder that holds audit.toml, such a file, or an experiment's folder."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Attack every feature party's transcript, and report what each of them could infer.

    RUN/audit.toml names the transcripts, the parties' own tables, and the labels that score the attacks:
    docs/measure.md. The label holder is an attacker too, on the columns of each feature party that the file names as
    [[victim]]: of a split network by embeddings, of trees by the sums that it opened, if it recorded them. `treetap
    demo --workdir` leaves one, and an experiment with an [audit] table, of which all runs are audited.

    treetap audit runs/demo/federation --fail-above any=0.4

    With --model and --table, in the place of RUN, a motivated intruder test: what does a holder of the model's card, of
    its export, or of served answers learn of a record of the training? Was it in the training, by up to 16 shadow
    models in 60 seconds of a processor (of a larger table records are drawn), and what is in each column.

    treetap audit --model runs/credit/seed-0 --table records.csv --label default --member trained
    """
    given = (published.model is not None, published.table is not None)
    if given != (run is None, run is None):
        raise BadInput("say RUN, or --model FOLDER and --table FILE in its place")
    with needs("audit"):
        from treetap.attacks.audit_file import audited_runs
        from treetap.lab.audit.audited import audit_published, audit_runs
    with _damage():
        if run is not None:
            above = audit_runs(audited_runs(run), asked, as_json=as_json)
        else:
            assert published.model is not None
            assert published.table is not None
            above = audit_published(published.model, published.table, published, asked, as_json=as_json)
    if above:
        raise typer.Exit(1)


@from_dataclasses
def attack(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="cl, uni, uni+cl, id2graph, id2graph-chunked, id2graph-quotient, own-cuts, known-neighbours, "
            "known-regression, first-component, vote or heaviest-cut; of pivodl also label_guess, gain_inversion, "
            "differential, disclosed or source_columns; "
            "of splitnn cl, gradient-clusters, gradient-labels, norm-scoring, direction-scoring or completion; of a "
            "prediction path-decoding or prediction-inversion.",
        ),
    ],
    attacker: AttackerOptions,
    labels: LabelOptions,
    settings: SettingOptions,
    classes: Annotated[int | None, typer.Option(help="Number of groups to look for.")] = None,
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
    own-cuts           k-means on the sides of the party's own splits, for records that may lie in their nodes

    Of trees, by labels of few records that the party knows, without groups:

    \b
    known-neighbours   the labels of the nearest known records, by the nodes that records lie in over all trees
    known-regression   a logistic regression on these nodes
    first-component    without a label, by what own splits, leaves and nodes have in common
    vote               without a label, by a weighted vote of own splits
    heaviest-cut       without a label, by the own split of the largest weight

    Of a job of splitnn, from the gradients that the party was sent, and its own model:

    \b
    gradient-clusters  k-means on the directions of gradients, without a label
    gradient-labels    labels of all training records from gradients and few known labels
    norm-scoring       two classes: length of single gradients
    direction-scoring  two classes: cosine with the gradient of one known record
    completion         a head on the party's published model, beside models that need no federation

    Of a job of pivodl also, without groups:

    \b
    label_guess        sign of the leaf weights that the party received, over records that it does not label
    gain_inversion     exact leaf weights from announced gains
    differential       labels from sums over sets that differ in few records
    disclosed          counts of what the messages disclose: bins, records of nodes, sums
    source_columns     bins of records that the party does not label, by left sets and by sums that it opened

    Of a prediction, by the recipient of its scores, with --job, --model, --columns and --predictions:

    \b
    path-decoding         of eini and lattice: the leaves behind each score, by the weights that the label holder knows
    prediction-inversion  of masked: exact leaf weights from scores, and then the leaves

    Settings, with --set NAME=VALUE or as lines NAME = VALUE of the TOML file --settings; of a network's attacks
    the second list, of a prediction's the third, by known labels the fourth, of pivodl's none:

    \b
    discount          weight of each further tree; 0.6 of trees in sequence, else 1
    alpha             weight of communities against own features; 3
    chunk_size        B, records per chunk, from 2; 1000
    chunk_weight      w', weight of the edge between chunks; 100
    chunk_edges       paper (as printed: a chunk's edge joins it to itself) or linked; paper
    columns           numbers of the columns to cluster on, as [0, 2]; all
    runs, passes      of Louvain: runs, and passes at most; 5, 100
    tolerance         of Louvain: gain of modularity that ends it; 1e-6
    max_entries       largest matrix of id2graph; 15000000
    starts            of k-means; 10
    iterations        of k-means; 300
    kmeans_tolerance  of k-means; 1e-4
    seed              of Louvain and k-means; 0

    \b
    known             labels that the attacker is assumed to know; 40
    draws             draws of these, over which figures are averaged; 5
    most_records      records that an attack uses at most, drawn; 10000
    most_epochs       epochs that are attacked at most; 10
    most_weights      weights of a bottom that is fitted again at most; 2000000
    seed              of draws, k-means and heads; 0

    \b
    records           whose leaves are decoded at most, drawn; 200
    work              sums on one side of a join, and combinations kept, at most; 262144
    rounds            random parts that are searched for two solutions; 4
    seed              of draws; 0

    \b
    known             labels that the attacker is assumed to know; 40
    draws             draws of these, over which figures are averaged; 20
    first             records of the rarest class that are named first, whose precision is measured; 100
    neighbours        known records that vote on a label; 5
    most_records      records that take part at most, drawn; 20000
    seed              of draws and of the control; 0

    Changed: --discount, --alpha, --chunk-size, --chunk-weight, --chunk-edges, --seed and --known are settings: in the
    place of --chunk-size 500 type --set chunk_size=500.

    treetap attack id2graph-quotient feature-b/transcripts/job --columns b.parquet --classes 2
    """
    with needs("audit"):
        from treetap.attacks import run
        from treetap.attacks.audit_file import AuditFile
        from treetap.attacks.files import AuditedParty
        from treetap.attacks.registry import row
    asked = row(name)
    party = AuditedParty.model_construct(
        name=attacker.party,
        transcript=attacker.transcript,
        table=attacker.columns,
        id=attacker.id,
        columns=attacker.use,
        model=attacker.model,
    )
    file = AuditFile.model_construct(
        None,
        job=attacker.job,
        ca=attacker.ca,
        revoked=attacker.revoked,
        classes=classes,
        drawn_only=attacker.drawn_only,
        label=labels.column_of(labels.labels, attacker.id),
        known=labels.column_of(labels.known_labels, attacker.id),
    )
    task = run.Task(name, party, file, settings.read(), attacker.received_only, attacker.predictions)
    if out is not None and not out.parent.is_dir():
        raise BadInput(f"--out {out}: there is no folder {out.parent}")
    if out is not None and not asked.groups:
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
