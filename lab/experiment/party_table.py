"""The `[[party]]` tables of an experiment: the columns and the labels that each party gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from treetap.commands.jobs.job_file import JobTable, has_parameter
from treetap.names import did_you_mean, named_by
from treetap.native.arithmetic import Choice
from treetap.party.defences.settings import OF_COLUMNS, Defences
from treetap.protocols.registry import training
from treetap.strict import Name
from treetap.tables.config import Constrained, Encode, encoded_by_name
from treetap.tables.public_cuts import PublicCuts
from treetap.trees.params import TreeParams
from treetap.workers.settings import WorkerSettings

#: Names of the federation's other processes, and of the certificates' folder and authority.
RESERVED = ("coordinator", "operator", "gateway", "certs", "ca")


class PartyTable(WorkerSettings, Constrained, PublicCuts):
    """One party: the columns it gets, by name or as a random share of those that no party names."""

    name: Name
    """The party's name; not coordinator, operator, certs or ca."""
    columns: list[str] | None = None
    """Its columns by name, or by a pattern such as "Tel_*"; or `share`."""
    share: Annotated[float, Field(ge=0, le=1)] | None = None
    """A share of the columns that no party names; shares add up to 1 at most, and the rest goes to nobody."""
    labels: bool = False
    """It is the label holder; one party is, unless labels are spread."""
    label_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """PIVODL: share of the training rows that this party labels, drawn by the seed; shares add up to 1."""
    label_rows: str | None = None
    """PIVODL: file of the ids of the training rows that this party labels; [data] needs `id`."""
    encode: Encode | None = None
    """Encoding of its columns, in the place of that of `[data]`."""
    record: Literal["received", "both", "off"] | None = None
    """Transcript; with an audit "received" by default, but of the label holder of a network. Written here for the label
    holder of trees, its attack on columns reads all, for longer.
    """
    arithmetic: Choice = "auto"
    """As in the party file."""
    optimizer: Literal["amplified"] | None = None
    """As in the party file, for audits."""
    defences: Defences = Defences()
    """Feature party: defences of its columns, `[party.defences]`."""

    @model_validator(mode="after")
    def _one_of(self) -> PartyTable:
        if (self.columns is None) == (self.share is None):
            raise ValueError("give either columns = [...] or share = 0.x")
        if len(set(self.columns or [])) < len(self.columns or []):
            raise ValueError("names a column twice")
        self.check_named(self.columns)
        if self.label_share is not None and self.label_rows is not None:
            raise ValueError("give either label_share = 0.x or label_rows = FILE")
        return self

    def check_named(self, columns: Sequence[str] | None) -> None:
        """Raise ValueError for a key that names a column that is none of these; None: they have no names yet."""
        for name in encoded_by_name(self.encode):
            if columns is None:
                raise ValueError(f"encode names {name!r}, and columns are drawn by share: name it in [data] encode")
            if not named_by(columns, name):
                raise ValueError(
                    f"encode names {name!r}, which is none of the party's columns{did_you_mean(name, columns)}"
                )
        self.check_directions(columns)
        self.check_cuts(columns)

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(
                f"another part of the experiment has this name, as have {', '.join(RESERVED)}; choose another"
            )
        return name


def column_faults(parties: Sequence[PartyTable]) -> list[str]:
    """Faults of names and columns: a name or a column that two parties have, shares that are too large."""
    names = [party.name for party in parties]
    if len(set(names)) != len(names):
        return ["two parties have one name"]
    owner: dict[str, str] = {}
    for party in parties:
        for column in party.columns or []:
            if column in owner:
                return [f"column {column!r} is claimed by {owner[column]} and by {party.name}"]
            owner[column] = party.name
    if sum(party.share or 0 for party in parties) > 1 + 1e-9:
        return ["the shares add up to more than 1"]
    return []


def cut_faults(parties: Sequence[PartyTable], job: JobTable) -> list[str]:
    """Faults of listed cuts: more bins than the job has."""
    params, faults = job.params(), list[str]()
    if not isinstance(params, TreeParams):
        return faults
    for party in parties:
        try:
            party.check_bins(params.max_bin)
        except ValueError as fault:
            faults.append(f"[[party]] {party.name}: {fault}")
    return faults


def red_team_faults(parties: Sequence[PartyTable], job: JobTable) -> list[str]:
    """Faults of who attacks: a feature party of a network by its optimiser."""
    given = [party for party in parties if party.optimizer is not None]
    if given and not has_parameter(job.protocol, "optimizer"):
        return [f"optimizer of {given[0].name}: protocol {job.protocol!r} trains by none; leave it out"]
    return [f"optimizer of {party.name}: is of a feature party; leave it out" for party in given if party.labels]


def defence_faults(parties: Sequence[PartyTable], of_labels: Defences) -> list[str]:
    """Faults of who has which defences: a feature party those of its columns, `[defences]` those of labels."""
    faults = []
    if columns := [name for name in OF_COLUMNS if name in of_labels.model_fields_set]:
        faults.append(
            f"[defences] {', '.join(columns)}: protects a feature party's columns, and this table is of labels; move "
            "it to [party.defences], below the [[party]] whose columns it protects"
        )
    for party in parties:
        if party.labels and party.defences.model_fields_set:
            faults.append(
                f"[party.defences] of {party.name}: the label holder sends nothing of its columns, and its "
                "defences of labels are in [defences]; leave it out"
            )
        elif labels := party.defences.named():
            faults.append(
                f"[party.defences] of {party.name}, {', '.join(labels)}: protects labels; move it to [defences], which "
                "is the label holder's"
            )
    return faults


def label_faults(parties: Sequence[PartyTable], job: JobTable) -> list[str]:
    """Faults of who has labels: one party, or, where they are spread, several, each row being labelled by one."""
    protocol, faults = training(job.protocol), list[str]()
    given = [party.name for party in parties if party.label_share is not None or party.label_rows is not None]
    if not protocol.one_role:
        faults = (
            [f"label_share and label_rows are not for protocol {job.protocol!r}: {', '.join(given)}"] if given else []
        )
        one = sum(party.labels for party in parties) == 1
        return faults + ([] if one else ["exactly one [[party]] has labels = true"])
    faults = []
    if any(party.labels for party in parties):
        faults.append(f"labels = true is not for protocol {job.protocol!r}: give label_share or label_rows")
    if len(parties) > protocol.most_equals:
        faults.append(f"{len(parties)} parties: protocol {job.protocol!r} takes at most {protocol.most_equals}")
    if without := [party.name for party in parties if party.columns == [] or party.share == 0]:
        faults.append(f"{', '.join(without)}: a party of protocol {job.protocol!r} has at least one column")
    if not given:
        faults.append("no party has labels: give label_share or label_rows")
    # shares are of the rows that no file names
    shares = [party.label_share for party in parties if party.label_share is not None]
    if shares and abs(sum(shares) - 1) > 1e-9:
        faults.append(f"label_share of all parties add up to {sum(shares):g}, not 1: one party labels each row")
    return faults
