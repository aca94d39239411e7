"""`treetap audit` and `treetap attack`: the information about labels, and about columns, in transcripts."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from treetap.commands.options import CA, REVOKED, Json, argument, from_dataclasses, needs, option
from treetap.errors import BadInput, Malformed


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of an audit. What is None, or not given, the audit file says."""

    details: bool = option(False, "Print every attack's figures too, which the report has in any case.")
    html: Path | None = option(
        None, "File of the report; by default audit.html beside audit.toml, of --model intruder.html in it."
    )
    document: Path | None = option(None, "Also write the report as JSON here.")
    job: str | None = option(None, "Name of the job, where the transcripts hold several.")
    ca: Path | None = option(None, CA)
    revoked: Path | None = option(None, REVOKED)
    frontier: Path | None = option(None, "What treetap frontier wrote as frontier.json: the advice is by its figures.")
    attacks: str | None = option(None, "Names, with commas between; see treetap attack --help.")
    every_tree: bool = option(
        False, "Group records after each number of trees, as --fail-above does; else after 1, 2, 5, …."
    )
    last_tree_only: bool = option(False, "Group them after all trees alone.")
    fail_above: list[str] | None = option(
        None,
        "Exit with 1 above it; may be repeated. any: V-measure of every attack but cl; an attack's name: its "
        "own; accuracy: of every attack but cl; information: share of the label's entropy that all nodes tell; "
        "known-neighbours, known-regression, first-component, vote and heaviest-cut, of trees: AUC by what a party "
        "knows of nodes and splits; "
        "label_guess, of pivodl: AUC of the guess of other parties' labels; source_columns, of pivodl: share of a "
        "party's cells that another one places right; gradient-clusters and gradient-labels, "
        "of splitnn: V-measure, and share of labels named right; attributes, decode, match and match-exact, of a "
        "label holder: accuracy or R² of any column, SSIM of images or share of the mean record's error removed; "
        "columns, of a label holder of trees: share of a feature party's cells that it placed in their bins; "
        "path-decoding and prediction-inversion, of predictions: share of whole paths, of hidden weights; membership "
        "and member-columns, of --model: AUC, and accuracy or R² of any column, by any published artefact.",
        metavar="LIMIT=V",
    )
    allow_partial: bool = option(
        False, "Let --fail-above judge transcripts that end before their job does, or lack trees."
    )

    def of_transcripts(self) -> list[str]:
        """The options that are given and that an audit of a published model has not."""
        beside = ("details", "html", "document", "fail_above")
        given = (it.name for it in fields(self) if it.name not in beside and getattr(self, it.name) != it.default)
        return [f"--{name.replace('_', '-')}" for name in given]

    def by_tree(self, *, thorough: bool) -> bool | Literal["few"]:
        """The numbers of trees after which records are grouped. Raises BadInput for two answers."""
        if self.every_tree and self.last_tree_only:
            raise BadInput("--every-tree and --last-tree-only exclude each other: leave one out")
        if self.last_tree_only:
            return False
        return True if self.every_tree or thorough else "few"


@dataclass(frozen=True, kw_only=True)
class PublishedOptions:
    """A published model, and a table of records of which some were in its training."""

    PANEL: ClassVar = "Published model"

    model: Path | None = option(
        None, "In the place of RUN: an experiment's run, a folder that model.save wrote, or a model that stands alone."
    )
    table: Path | None = option(
        None, "With --model: records with the columns of all parties and the label, best half of them of the training."
    )
    id: str = option("id", "The id column of --table.")
    label: str = option("label", "The label's column of --table.")
    member: str = option(
        "member", "The column of --table with two values, the later one (1, yes, true) for records of the training."
    )


@dataclass(frozen=True, kw_only=True)
class AttackerOptions:
    """The attacker: its transcript, its own table and its model."""

    PANEL: ClassVar = "Attacker"

    transcript: Path = argument("A transcript's folder, a state folder, a .tap file or an archive of any.")
    job: str | None = option(None, "Name of the job, where the transcript holds several.")
    party: str | None = option(None, "Name of the transcript's party, if it is not in it.")
    ca: Path | None = option(None, CA)
    revoked: Path | None = option(None, REVOKED)
    columns: Path | None = option(None, "The attacker's own table, CSV or Parquet.")
    use: list[str] | None = option(None, "Only this column of it; may be repeated.")
    id: str = option("id", "The table's id column.")
    model: Path | None = option(None, "Folder of the attacker's published model, of splitnn: state/models/JOB.")
    predictions: Path | None = option(None, "File of predictions whose scores are attacked.")
    received_only: bool = option(False, "Use messages alone, without own splits and set differences.")
    drawn_only: bool = option(
        False, "Of each leaf use only the records that its tree drew, if the protocol draws records."
    )


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Tables of labels: those that score the attack, and those that the attacker knows."""

    PANEL: ClassVar = "Labels"

    labels: Path | None = option(None, "A table with the same ids and the labels, to score against.")
    label: str | None = option(None, "The label's column in it.")
    label_id: str | None = option(None, "The id column in it; by default as --id.")
    known_labels: Path | None = option(
        None,
        "A table with ids and the column of --label: labels that the attacker is assumed to know. "
        "Without it some of --labels.",
    )

    def column_of(self, path: Path | None, id_column: str) -> tuple[Path, str, str] | None:
        """A table, its label's column and its id column; None without the table.

        Raises:
            BadInput: a column is named without a table, or a table without a column.
        """
        if (self.labels is None and self.known_labels is None) != (self.label is None):
            raise BadInput("--label COLUMN and --labels FILE, or --known-labels FILE, go together")
        return None if path is None or self.label is None else (path, self.label, self.label_id or id_column)


@dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """Settings of an attack, which its own schema checks."""

    settings: Path | None = option(None, "Settings of the attack: see above.", "--settings", metavar="FILE.toml")
    given: list[str] | None = option(
        None, "One setting, before the file's; may be repeated.", "--set", metavar="NAME=VALUE"
    )

    def read(self) -> dict[str, Any]:
        """All settings that are given; a value that is no TOML is text, so that a word needs no quotes.

        Raises:
            BadInput: the file cannot be read, or an option is no NAME=VALUE.
        """
        settings = {} if self.settings is None else _table(self.settings)
        for text in self.given or []:
            name, equals, value = text.partition("=")
            if not equals or not name.strip():
                raise BadInput(f"--set {text}: must be NAME=VALUE, as --set seed=1")
            try:
                settings[name.strip()] = tomllib.loads(f"value = {value}")["value"]
            except tomllib.TOMLDecodeError:
                settings[name.strip()] = value.strip()
        return settings


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise BadInput(f"--settings {path}: cannot be read: {fault.strerror or fault}") from None
    except ValueError as fault:
        raise BadInput(f"--settings {path}: is no TOML: {fault}") from None


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
    engine            of Louvain: auto, python-louvain or networkit; auto
    runs, passes      of Louvain: runs per engine, passes at most; 5, 100
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
        from treetap.attacks.registry import row
    given, asked = settings.read(), row(name)
    if given and asked.settings is None:
        raise BadInput(f"attack {name} has no settings; leave out --set and --settings")
    task = run.Task(
        name=name,
        transcript=attacker.transcript,
        job=attacker.job,
        ca=attacker.ca,
        revoked=attacker.revoked,
        party=attacker.party,
        table=attacker.columns,
        use=attacker.use,
        id=attacker.id,
        classes=classes,
        received_only=attacker.received_only,
        drawn_only=attacker.drawn_only,
        labels=labels.column_of(labels.labels, attacker.id),
        settings=given,
        model=attacker.model,
        known=labels.column_of(labels.known_labels, attacker.id),
        predictions=attacker.predictions,
    )
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
