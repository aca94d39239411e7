"""The commands of an operator about jobs: train, predict, align, status, cancel, resume and prune."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treetap import terminal
from treetap.commands.jobs.serve import (
    DEFAULT_DAYS,
    DEFAULT_OPERATOR,
    Days,
    ModelOptions,
    OperatorFile,
    operating,
    resumed,
)
from treetap.commands.options import Json, from_dataclasses, option, print_json
from treetap.errors import BadInput, TreetapError
from treetap.pages.printing import print_words

if TYPE_CHECKING:
    from treetap.commands.jobs.client import Operator
    from treetap.wire.v2 import jobs_pb2

Detach = Annotated[bool, typer.Option(help="Submit the job and do not wait.")]
JobName = Annotated[str, typer.Argument(help="Name of the job.")]


def train(
    file: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job.")],
    operator: OperatorFile = DEFAULT_OPERATOR,
    days: Days = DEFAULT_DAYS,
    detach: Detach = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Begin no job: ask all parties whether it could begin, and print all that is against it."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Submit a training job to the coordinator and watch it. Ctrl-C stops the watching, not the job.

    With --check every party checks the job by its policy and, where that permits it, by its table. None stores, aligns
    or sends anything of its records.
    """
    submit(file, operator, days, detach=detach, check=check, as_json=as_json)


def screen(
    file: Annotated[
        Path,
        typer.Argument(metavar="JOB.toml", help="The job, as for train; or the folder of a screening's report."),
    ],
    operator: OperatorFile = DEFAULT_OPERATOR,
    days: Days = DEFAULT_DAYS,
    detach: Detach = False,
    check: Annotated[bool, typer.Option("--check", help="Ask all parties whether it could begin, and begin none.")] = (
        False
    ),
    as_json: Json = False,
) -> None:
    """What feature parties' columns would add to the label holder's own score: one round of sums, and no model.

    treetap screen job.toml

    treetap screen state/models/JOB

    The first line runs a screening: of the job's file count parties, table, alignment, join, scheme, privacy, max_bin,
    missing and seed. Its report stays at the label holder, in the folder models/JOB of its state, from which the second
    line prints it: information value, gain and redundancy by column, and with --json weights of evidence by bin. Every
    feature party's policy must send COLUMN_BINS to the label holder; by default none does. With privacy = "private" the
    report has the gain of each party's best cut alone, and no column. A screening counts as an attempt at a training
    (jobs_per_day).
    """
    if file.is_dir():
        _print_report(file, as_json=as_json)
        return
    submit(file, operator, days, detach=detach, check=check, as_json=as_json, screening=True)


def submit(
    file: Path,
    operator: Path,
    days: float = DEFAULT_DAYS,
    *,
    detach: bool,
    check: bool,
    as_json: bool,
    screening: bool = False,
    again: str | None = None,
) -> None:
    """Submit the training of a file, or the screening that it stands for, or only have it checked.

    `again`: the name of a job that replaces the file's, which has ended; empty: one is made up.
    """
    from treetap.commands.jobs.job_file import JobFile
    from treetap.protocols.job_spec import processes_of, screening_of
    from treetap.protocols.registry import training
    from treetap.strict import load
    from treetap.wire.v2 import jobs_pb2

    if check and detach:
        raise BadInput("--check, --detach: a check begins no job that could go on: give one of them")
    job = load(file, JobFile)
    if again is not None:
        if job.name is None:
            raise BadInput(f"{file}: has no name; write that of the model that is to be replaced")
        table = job.job.model_copy(update={"replaces": job.name})
        job = job.model_copy(update={"name": again or None, "job": table})
    drafts, said = job.job.drafts(job.to_spec), list[str]()
    if job.job.records is not None and job.job.columns is not None:
        from treetap.commands.jobs.planned_costs import planned

        drafts, said = planned(job.job, drafts, job.job.records, [*job.job.columns.values()])
    print_words(terminal.err, *said)
    specs = [job.to_spec(draft) for draft in drafts]
    specs = [*map(screening_of, specs)] if screening else specs
    requests = [jobs_pb2.SubmitRequest(job=job.name or "", spec=spec) for spec in specs]
    if not (check or as_json):
        print_words(terminal.out, *training(job.job.protocol).privacy(job.job.params()))
    with operating(operator, days) as client:
        asked = _permitted(client, requests)
        if check:
            _print_checked(client.check(asked), processes_of(asked.spec), as_json=as_json)
            return
        before = client.status(asked.spec.replaces)[0] if asked.spec.replaces else None
        name = client.submit(asked)
        _follow(client, name, detach=detach, as_json=as_json, before=before)
    if screening and not (detach or as_json):
        where = f"models/{name} of {asked.spec.aggregator}'s state folder"
        print_words(terminal.err, f"the report lies in {where}; there, treetap screen prints it")


def _print_report(folder: Path, *, as_json: bool) -> None:
    """Print the report of a screening that lies in a folder of the label holder's models.

    Raises:
        BadInput: there is none, or it is not the one that was written.
    """
    import json

    from treetap.models.store import REPORT, read_manifest

    manifest = read_manifest(folder)
    if REPORT not in manifest["files"]:
        raise BadInput(
            f"{folder}: has no report of a screening; one lies in the folder models/JOB of its label holder's state"
        )
    report: dict[str, Any] = {"classes": manifest["classes"], **json.loads((folder / REPORT).read_bytes())}
    if as_json:
        print_json(report)
        return
    own, parties = report["own"], report["parties"]
    shared = any("cuts" in party for party in parties)
    if shared:
        terminal.print_table(("party", "cuts", "gain of the best one beyond", "p"), map(_of_best_cut, parties))
    else:
        headers = ("party", "column", "IV", "gain alone", "beyond", "redundancy", "missing", "p")
        terminal.print_table(
            headers, (_figures(party["party"], column) for party in parties for column in party["columns"])
        )
    terminal.out.print(
        terminal.text(
            f"your own score: AUC {own['auc']:.3f} out of fold; {own['good']} records of class "
            f"{report['classes'][0]!r} count as good, {own['bad']} of {report['classes'][1]!r} as bad"
        ),
        soft_wrap=True,
    )
    for party in parties:
        terminal.out.print(terminal.text(party["said"]), soft_wrap=True)
    terminal.out.print("gains: nats of log loss in 1,000 records, less what noise gains; p: of so much by chance")
    if shared:
        terminal.out.print(_NOT_OPENED, soft_wrap=True)
    for party in parties:
        told = "you know the sums of g and h on a side of its best cut, not of which column nor of which records"
        if not shared:
            bins = sum(len(column["bins"]) for column in party["columns"])
            told = f"you know how many records of each class are in {bins} bins of {len(party['columns'])} columns"
        terminal.out.print(
            terminal.text(f"told: of {party['party']}, {told}; {party['party']} knows which records are common"),
            soft_wrap=True,
        )


#: What a screening of privacy = "private" does not have.
_NOT_OPENED = (
    "sums are shared: no IV, WOE or redundancy, nor an interval of AUC; for these screen with privacy = 'withheld'"
)


def _of_best_cut(party: dict[str, Any]) -> tuple[str, ...]:
    return party["party"], str(party["cuts"]), f"{1000 * party['gain_beyond']:.2f}", f"{party['p_value']:.2g}"


def _figures(party: str, column: dict[str, Any]) -> tuple[str, ...]:
    redundancy = column["redundancy"]
    return (
        party,
        column["name"] or str(column["number"]),
        f"{column['iv']:.3f}",
        f"{1000 * column['gain_alone']:.2f}",
        f"{1000 * column['gain_beyond']:.2f}",
        "" if redundancy is None else f"{redundancy:.2f}",
        f"{column['missing_share']:.1%}",
        f"{column['p_value']:.2g}",
    )


def _permitted(client: Operator, requests: Sequence[jobs_pb2.SubmitRequest]) -> jobs_pb2.SubmitRequest:
    """The first of these that all parties would begin, or else the last: its refusal comes with the job."""
    asked = next((it for it in requests[:-1] if not any(answer.error for answer in client.check(it))), requests[-1])
    if asked != requests[0]:
        typer.echo(f"a party would not begin the cheaper scheme; taken: {asked.spec.scheme}", err=True)
    return asked


def _print_checked(answers: Sequence[jobs_pb2.Checked], parties: Sequence[str], *, as_json: bool) -> None:
    """Print what each of a job's parties has against it; an error ends the command unless that is nothing."""
    from treetap.wire.v2 import jobs_pb2

    answered = {answer.party for answer in answers}
    silent = [jobs_pb2.Checked(party=name, error="has not answered") for name in parties if name not in answered]
    answers = [*answers, *silent]
    faults = [answer for answer in answers if answer.error]
    if as_json:
        keys = ("party", "error", "bad_input", "would_wait")
        rows = [{key: getattr(answer, key) for key in keys} for answer in answers]
        print_json({"could_begin": not faults, "answers": rows})
    for answer in () if as_json else answers:
        waits = "the job would wait for approval here, or for an operator's signature; its table was not looked at"
        fits = waits if answer.would_wait else "the job could begin here"
        print_words(terminal.out, f"{answer.party}: {answer.error or fits}")
    if faults:
        names = ", ".join(dict.fromkeys(answer.party for answer in faults))
        kind = BadInput if all(answer.bad_input for answer in faults) else TreetapError
        raise kind(f"the job could not begin, because of {names}")


@dataclass(frozen=True, kw_only=True)
class PredictionOptions(ModelOptions):
    """Options of a prediction that is written to a file."""

    records_file: str = option(
        "", "File of ids at the label holder or recipient, below its data folder; without it all records.", "--records"
    )
    recipient: str = option("", "Of masked: the party that gets the scores; without it the training's first party.")
    prediction_weights: str = option(
        "", "Of masked: exact (default), or noised: leaf weights as the training released them."
    )
    explain: bool = option(
        False,
        "Also write the candidate paths, with names where the owner's policy emits FEATURE_NAME to the label holder.",
        "--explain",
    )
    explain_limit: int = option(0, "Of --explain: number of records, from the first on; 0: all.", min=0, max=2**63 - 1)
    attributions: bool = option(
        False,
        "Of eini: also Shapley values, with at most four feature parties; every one's policy must emit EXPLANATION to "
        "the label holder.",
        "--attributions",
    )
    evaluate: bool = option(
        False,
        "Also compare with the labels of the label holder's or recipient's table; measures come back if its "
        "policy lets METRIC go to the coordinator. Not with --records.",
        "--evaluate",
    )
    format: str = option("", "Of the predictions' file: parquet (default) or csv.")


@from_dataclasses
def predict(
    asked: PredictionOptions,
    operator: OperatorFile = DEFAULT_OPERATOR,
    days: Days = DEFAULT_DAYS,
    detach: Detach = False,
    as_json: Json = False,
) -> None:
    """Predict with a trained model. The label holder, or recipient, writes a file in its own state folder."""
    from treetap.protocols.prediction import predict_request

    request = predict_request(**asdict(asked))
    with operating(operator, days) as client:
        _follow(client, client.predict(request), detach=detach, as_json=as_json)


def align(
    parties: Annotated[
        list[str], typer.Argument(metavar="PARTY", help="Two or more; the first one combines the lists.")
    ],
    table: Annotated[str, typer.Option(help="Name of each party's table.")] = "train",
    count: Annotated[bool, typer.Option("--count", help="How many records all of them hold (default).")] = False,
    records: Annotated[
        bool,
        typer.Option("--records", help="Each party also writes which of its own rows these are, to a file of its own."),
    ] = False,
    name: Annotated[str, typer.Option(help="Name of the preview; without it, one is made up.")] = "",
    operator: OperatorFile = DEFAULT_OPERATOR,
    days: Days = DEFAULT_DAYS,
    detach: Detach = False,
    as_json: Json = False,
) -> None:
    """Before any job: how many records the tables of some parties have in common, by private set intersection.

    treetap align clinic lab --table train

    treetap align clinic lab --table train --records

    A count shows no party which of its ids are common. With --records each party learns that of its own ids, as in a
    training. Every party's policy must permit it: preview = "count", or "records"; it is off by default. Below a
    party's min_common_records the answer is only "fewer than" that number, and previews_per_day bounds how often the
    same parties may ask. Ids are read from the id column of each table, and nothing else is.
    """
    from treetap.wire.v2 import jobs_pb2

    if count and records:
        raise BadInput("--count and --records: give one; --records answers with the number too")
    answer = "records" if records else "count"
    with operating(operator, days) as client:
        request = jobs_pb2.AlignRequest(job=name, answer=answer, table=table, parties=parties)
        _follow(client, client.align(request), detach=detach, as_json=as_json)


def status(
    job: Annotated[str, typer.Argument(help="Name of a job; without it, all.")] = "",
    operator: OperatorFile = DEFAULT_OPERATOR,
    as_json: Json = False,
) -> None:
    """Show the status of one job or of all."""

    from treetap.commands.jobs import progress_view

    with operating(operator) as client:
        statuses = client.status(job)
    if as_json:
        print_json({"jobs": [progress_view.status_dict(status) for status in statuses]})
    else:
        progress_view.print_statuses(statuses)


def cancel(job: JobName, operator: OperatorFile = DEFAULT_OPERATOR, as_json: Json = False) -> None:
    """Stop a job and have every party delete its progress."""

    from treetap.commands.jobs import progress_view

    with operating(operator) as client:
        ended = client.cancel(job)
    if as_json:
        print_json(progress_view.status_dict(ended))
    else:
        progress_view.print_statuses([ended])


def resume(
    job: JobName,
    operator: OperatorFile = DEFAULT_OPERATOR,
    detach: Annotated[bool, typer.Option(help="Do not wait.")] = False,
    as_json: Json = False,
) -> None:
    """Resume an interrupted job: stored trees are kept, and the result is the same model.

    Of a served job, prints its addresses; Ctrl-C stops the watching, not the serving.
    """
    with operating(operator) as client:
        client.resume(job)
        if not detach and client.status(job)[0].kind == "serve":
            resumed(client, job, as_json=as_json)
        else:
            _follow(client, job, detach=detach, as_json=as_json)


def prune(
    jobs: Annotated[list[str] | None, typer.Argument(help="Jobs to forget; without them, all that are old.")] = None,
    older_than: Annotated[float, typer.Option(min=0, help="Days since the end of a job that is not named.")] = 30,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Name the jobs and delete nothing.")] = False,
    operator: OperatorFile = DEFAULT_OPERATOR,
    as_json: Annotated[bool, typer.Option("--json", help="Print the names as JSON and nothing else.")] = False,
) -> None:
    """Delete the coordinator's record of jobs that are over. Models, predictions and transcripts stay with the parties.

    Without names: predictions that are finished, and jobs of all kinds that are cancelled or have failed for their
    input. A finished training is pruned by name only; after that no prediction with its model is possible.
    """
    with operating(operator) as client:
        gone = client.prune(jobs or [], older_than, dry_run=dry_run)
    if as_json:
        print_json({"jobs": gone})
        return
    for job in gone:
        typer.echo(job)


def _compared(before: jobs_pb2.JobStatus, after: jobs_pb2.JobStatus) -> dict[str, dict[str, float]]:
    """Measure → its value before and after, of those that two trainings both have, the number of records first."""
    old, new = (
        {**({"records": of.records} if of.records else {}), **{metric.name: metric.value for metric in of.metrics}}
        for of in (before, after)
    )
    return {name: {"before": old[name], "after": value} for name, value in new.items() if name in old}


def _follow(
    client: Operator, job: str, *, detach: bool, as_json: bool, before: jobs_pb2.JobStatus | None = None
) -> None:
    """Watch a job to its end and turn its state into output and exit status.

    `before`: the training of the model that it replaces, with which its measures are compared.
    """
    from treetap.commands.jobs import progress_view

    if detach:
        print_json({"job": job}) if as_json else typer.echo(job)
        return
    if not as_json:
        terminal.err.print(f"job {job}")
    with progress_view.live(job) as update:
        ended = client.watch(job, progress_view.saying_changes(job, update))
    replaced = before if ended.state == "finished" else None
    measures = {} if replaced is None else _compared(replaced, ended)
    if as_json:
        beside = {} if replaced is None else {"replaces": {"model": replaced.job, "measures": measures}}
        print_json({**progress_view.status_dict(ended), **beside})
    else:
        progress_view.print_statuses([ended], errors=False)  # an error is this command's message
        if replaced is not None:
            rows = [
                (name, f"{it['before']:.6g}", f"{it['after']:.6g}", f"{it['after'] - it['before']:+.6g}")
                for name, it in measures.items()
            ]
            terminal.print_table(("measure", replaced.job, job, "difference"), rows)
            terminal.err.print(f"each party deletes its part of {replaced.job} once {job} opens to predict or serve")
    if ended.state != "finished":
        raise (BadInput if ended.bad_input else TreetapError)(ended.error or ended.state)
