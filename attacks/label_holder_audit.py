"""The part of an audit in which the label holder attacks the columns of feature parties."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treetap.attacks.audit_file import AuditFile
from treetap.attacks.files import AuditedParty, Victim
from treetap.attacks.networks.schema import FeatureSettings, VictimFigures
from treetap.attacks.registry import Needs, rows
from treetap.attacks.sums.attack import SumsEvidence
from treetap.attacks.sums.propagation import Kept
from treetap.attacks.sums.schema import SumsSettings
from treetap.attacks.sums.scoring import TrueColumns
from treetap.attacks.view.kept_messages import located
from treetap.attacks.view.own_table import load_own_table, read_numbers
from treetap.attacks.view.predicted_embeddings import read_predicted
from treetap.attacks.view.replay import checked
from treetap.attacks.view.view import View, read_label_holder
from treetap.errors import BadInput
from treetap.neural.params import SplitnnParams
from treetap.protocols.job_spec import params_of
from treetap.protocols.libraries import require_library
from treetap.protocols.registry import training, training_name
from treetap.tables.config import TableConfig
from treetap.tables.reading import read_table
from treetap.version import package_version
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2 import control_pb2, setup_pb2

if TYPE_CHECKING:
    from treetap.attacks.features.findings import Received

#: Beside the label holder's transcript: results of finished steps, so that an audit can go on after an interruption.
FOLDER = "audit-steps"
#: Attack by opened sums → the field of the document that holds its figures, by [[victim]].
FIELDS = {"columns": "columns_read", "reverse-sum": "marks_read"}
#: Keys of [[victim]] that a job of trees does not have.
_OF_NETWORKS = ("auxiliary", "victims", "model", "attributes", "epoch", "predicted", "records")
#: Key of [[victim]] that a job needs → the words for it.
_NEEDED = {
    "auxiliary": "…, a table of records whose columns the label holder knows",
    "truth": "…, the table of that party, by which claims are scored",
}


def label_holder(file: AuditFile) -> str | None:
    """The [[party]] that attacks the columns of [[victim]]; None without any.

    Raises:
        BadInput: no [[party]] is the label holder, it has no table, all parties of the job have one role, or a
            [[victim]] is none of its feature parties, names an epoch that it has not, lacks a key or has another job's.
    """
    if not file.victim:
        return None
    specs = {party.name: recorded_job(party.transcript, file.job) for party in file.party}
    spec = next((spec for spec in specs.values() if spec is not None), None)
    if spec is None:
        return None  # the error is that of reading a transcript without a training
    holder = next((name for name, job in specs.items() if job is not None and job.aggregator == name), None)
    if training(training_name(spec)).one_role:
        raise BadInput(
            f"[[victim]]: the job is of protocol {training_name(spec)!r}, in which all parties have one role: leave "
            "[[victim]] out"
        )
    if holder is None:
        raise BadInput(
            f"[[victim]] {file.victim[0].name}: the label holder {spec.aggregator} attacks its columns, and no "
            f'[[party]] is that: add one with name = "{spec.aggregator}", transcript = … and table = …'
        )
    params = params_of(spec)
    network = params if isinstance(params, SplitnnParams) else None
    if next(party for party in file.party if party.name == holder).table is None:
        what = "records" if network is None else "embeddings"
        raise BadInput(f"[[party]] {holder}: {what} are found by the ids of its own table: say table = …")
    for victim in file.victim:
        _check(victim, holder, spec, network)
    return holder


def read_holder(file: AuditFile, party: AuditedParty) -> View:
    """The label holder's view: of trees with the opened sums, of a split network with embeddings.

    These are of the last whole epoch, or else of those that are named.
    """
    named = _epochs(file)
    last = any(victim.epoch is None for victim in file.victim)
    return read_label_holder(
        party.transcript, file.job, party.name, file.ca, file.revoked, epochs=None if last else named
    )


def attacked(file: AuditFile, party: AuditedParty, view: View, say: Callable[[str], None]) -> dict[str, VictimFigures]:
    """The attacks on the columns of each [[victim]].

    Raises:
        BadInput: a file cannot be used, or PyTorch is not installed.
        Malformed: an embedding does not fit its batch.
    """
    require_library(view.protocol, training(view.protocol))
    from treetap.attacks.features.findings import audited_victim

    settings, figures = FeatureSettings.read(file.features), {}
    for victim in file.victim:
        of_victim = partial(_say, say, victim.name)
        of_victim("embeddings")
        received = _received(file, party, view, victim)
        attacks = {
            name: row.run
            for name, row in rows(Needs.EMBEDDINGS).items()
            if victim.attacks is None or name in victim.attacks
        }
        figures[victim.name] = audited_victim(view, victim, received, settings, attacks, of_victim)
    return figures


def columns_read(
    file: AuditFile, party: AuditedParty, view: View, say: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """The figures of each [[victim]] by the field of the document that holds an attack's.

    Raises:
        BadInput: a table lacks records of the job, or is not the one that the party trained on.
        DataError: a table cannot be read, or has no such column.
    """
    assert view.opened is not None  # `treetap.attacks.label_holder_audit` checks both
    assert party.table is not None
    ids = load_own_table(party.table, view, party.id, []).ids
    settings = SumsSettings.read(file.sums)
    figures: dict[str, dict[str, Any]] = {field: {} for field in FIELDS.values()}
    for victim in file.victim:
        kept = Kept.of(
            party.transcript.parent / FOLDER,
            package_version(),
            view.job,
            view.attempt,
            view.anchor,
            victim.name,
            settings,
            [(tree.index, int(tree.values.sum()), sorted(tree.nodes)) for tree in view.opened.trees],
        )
        # The party's own table in the common order of the records; columns of text are numbered.
        assert victim.truth is not None
        table = read_numbers(victim.truth, victim.id, victim.columns, view.missing, cuts=victim.cuts)
        places = table.ids.places_of(ids)
        if absent := int((places < 0).sum()):
            raise BadInput(
                f"{victim.truth}: column {victim.id!r} lacks {absent} of the {len(places)} ids of job {view.job!r}: it "
                f"is not the table that {victim.name} trained on"
            )
        truth = TrueColumns.of(table.take(np.asarray(places, dtype=np.int64)), view.opened.params.max_bin)
        evidence = SumsEvidence(victim.name, view.opened, truth, settings, partial(_say, say, victim.name), kept)
        for row in rows(Needs.SUMS).values():
            if victim.attacks is None or row.name in victim.attacks:
                figures[FIELDS[row.name]][victim.name] = row.run(evidence)
        kept.clear()
    return figures


def _say(say: Callable[[str], None], victim: str, part: str) -> None:
    say(f"columns of {victim}: {part}")


def _received(file: AuditFile, party: AuditedParty, view: View, victim: Victim) -> Received:
    """The embeddings that a [[victim]] names, and the ids of their records."""
    from treetap.attacks.features.findings import Received

    assert party.table is not None  # `label_holder` checks it
    assert view.embeddings is not None
    if victim.predicted is not None:
        return _predicted(file, party, view, victim, victim.predicted)
    ids = load_own_table(party.table, view, party.id, []).ids
    embeddings = view.embeddings
    if victim.epoch is not None and victim.epoch - 1 not in embeddings.epochs:
        again = read_label_holder(
            party.transcript, file.job, party.name, file.ca, file.revoked, epochs=_epochs(file)
        ).embeddings
        assert again is not None
        if victim.epoch - 1 not in again.epochs:
            raise BadInput(
                f"[[victim]] {victim.name}: epoch = {victim.epoch}: {view.path} has no embeddings of that epoch: name "
                "another one, or leave epoch out for the last whole one"
            )
        embeddings = again
    return Received(embeddings.of(victim.name, None if victim.epoch is None else victim.epoch - 1), ids, view.job)


def _predicted(file: AuditFile, party: AuditedParty, view: View, victim: Victim, job: str) -> Received:
    """The embeddings of a prediction, and the ids of its records in the label holder's table of it."""
    from treetap.attacks.features.findings import Received

    assert victim.records is not None  # the audit file checks it
    predicted = read_predicted(party.transcript, job, view, file.ca, file.revoked)
    table = read_table(TableConfig(path=victim.records, id=party.id), with_label=False, missing=view.missing)
    name_of = dict(zip(table.rows.tolist(), table.ids, strict=True))
    if absent := [row for row in predicted.rows.tolist() if row not in name_of]:
        raise BadInput(
            f"{victim.records}: has {len(table.ids)} rows, but row {absent[0] + 1} of {party.name}'s table is of "
            f"prediction {job!r}: records = … is another table, or another version of it"
        )
    ids = [name_of[row] for row in predicted.rows.tolist()]
    return Received(predicted.of(victim.name), ids, job, True, predicted.faults)


def _epochs(file: AuditFile) -> set[int]:
    """The epochs that [[victim]] name, from 0."""
    return {victim.epoch - 1 for victim in file.victim if victim.epoch is not None}


def _check(victim: Victim, holder: str, spec: setup_pb2.JobSpec, network: SplitnnParams | None) -> None:
    """Raise BadInput for a [[victim]] that does not fit the job. `network`: None of a job of trees."""
    where, parties = f"[[victim]] {victim.name}", ", ".join(spec.feature_parties)
    if victim.name == holder:
        raise BadInput(f"{where}: is the label holder itself; name the feature party that it attacks: {parties}")
    if victim.name not in spec.feature_parties:
        raise BadInput(f"{where}: is no feature party of the job; name one of {parties}")
    protocol = training_name(spec)
    needed = "truth" if network is None else "auxiliary"
    if getattr(victim, needed) is None:
        raise BadInput(f"{where}: a job of protocol {protocol!r} needs {needed} = {_NEEDED[needed]}")
    if network is None and (wrong := [key for key in _OF_NETWORKS if getattr(victim, key) is not None]):
        raise BadInput(f"{where}: {wrong[0]} is of split networks, and the job is of {protocol!r}: leave it out")
    fitting = Needs.SUMS if network is None else Needs.EMBEDDINGS
    if unfit := [name for name in victim.attacks or [] if name not in rows(fitting)]:
        raise BadInput(
            f"{where}: attack {unfit[0]!r} is not on jobs of protocol {protocol!r}; those are "
            f"{', '.join(rows(fitting)) or 'none'}"
        )
    if network is not None and victim.epoch is not None and victim.epoch > network.epochs:
        raise BadInput(f"{where}: epoch = {victim.epoch}: the job has {network.epochs}; name one from 1 to that")


def recorded_job(path: Path, job: str | None = None) -> setup_pb2.JobSpec | None:
    """The job as its first submission in this transcript describes it; None where it begins no training.

    Raises:
        BadInput: there is no such transcript, or it is ambiguous: see `located`.
        Malformed: a record before that step was changed.
    """
    with located(path, job) as place:
        for record in TranscriptReader(place):
            if record.step == "prepare" and isinstance(step := checked(record), control_pb2.StepRequest):
                return step.setup.prepare.spec
    return None
