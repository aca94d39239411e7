"""The file that `treetap experiment` reads: one table, its parties and a job."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from treetap.commands.jobs.job_file import JobTable
from treetap.names import Name
from treetap.protocols.job_spec import foreign_dropout
from treetap.protocols.registry import PREDICTION, prediction
from treetap.strict import Strict
from treetap.tables.config import Encoding

#: The protocols that predict; the first is the default.
PROTOCOLS = tuple(PREDICTION)
#: Names of the federation's other processes, and of the certificates' folder and authority.
RESERVED = ("coordinator", "operator", "certs", "ca")


class DataTable(Strict):
    """The joined table. `$NAME` in `path` is an environment variable; a relative path is from the file's folder."""

    path: str
    label: str
    id: str | None = None
    drop: list[str] = []
    encode: Encoding | None = None
    compare: bool = False
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    seed: int | list[int] = 0

    @field_validator("seed")
    @classmethod
    def _seeds(cls, seed: int | list[int]) -> int | list[int]:
        each = seed if isinstance(seed, list) else [seed]
        if not each:
            raise ValueError("names no seed; give a number, or a list with one number per run")
        if min(each) < 0:
            raise ValueError("a seed is a whole number from 0")
        if len(set(each)) < len(each):
            raise ValueError("names a seed twice; each seed is one run")
        return seed

    @property
    def seeds(self) -> list[int]:
        """One for each run."""
        return self.seed if isinstance(self.seed, list) else [self.seed]


class PartyTable(Strict):
    """One party: the columns it gets, by name or as a random share of those that no party names."""

    name: Name
    columns: list[str] | None = None
    share: Annotated[float, Field(ge=0, le=1)] | None = None
    labels: bool = False
    record: Literal["received", "both", "off"] | None = None
    workers: Annotated[int, Field(ge=1, le=256)] | None = None

    @model_validator(mode="after")
    def _one_of(self) -> PartyTable:
        if (self.columns is None) == (self.share is None):
            raise ValueError("give either columns = [...] or share = 0.x")
        if len(set(self.columns or [])) < len(self.columns or []):
            raise ValueError("names a column twice")
        return self

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(
                f"another part of the experiment has this name, as have {', '.join(RESERVED)}; choose another"
            )
        return name


class AuditTable(Strict):
    """The attacks on the feature parties' transcripts after each run; by default those of `treetap audit`."""

    attacks: Annotated[list[str], Field(min_length=1)] | None = None
    classes: Annotated[int, Field(ge=2)] | None = None
    by_tree: bool = True
    drawn_only: bool = False
    settings: dict[str, Any] = {}

    @model_validator(mode="after")
    def _known(self) -> AuditTable:
        try:
            from attacks.audit_file import check_settings, known_attacks
        except ImportError as missing:
            raise ValueError(f"needs {missing.name}: pip install 'treetap[audit]'") from None
        if self.attacks is not None:
            known_attacks(self.attacks)
        check_settings(self.settings)
        return self


class PredictTable(Strict):
    """The prediction of the held-out rows: protocols, and the largest number of rows."""

    protocols: Annotated[list[Literal[PROTOCOLS]], Field(min_length=1)] = [PROTOCOLS[0]]  # type: ignore[valid-type]
    limit: Annotated[int, Field(ge=1)] | None = None

    @field_validator("protocols")
    @classmethod
    def _once(cls, protocols: list[str]) -> list[str]:
        if len(set(protocols)) < len(protocols):
            raise ValueError("names a protocol twice")
        for name in protocols:
            found = prediction(name)
            if found.library and find_spec(found.library) is None:
                raise ValueError(f"{name} needs {found.library}: pip install 'treetap[{found.extra}]'")
        return protocols


class ExperimentFile(Strict):
    """The file that `treetap experiment` reads."""

    data: DataTable
    party: Annotated[list[PartyTable], Field(min_length=2)]
    job: JobTable
    audit: AuditTable | None = None
    predict: PredictTable | None = None

    @model_validator(mode="before")
    @classmethod
    def _aligned_already(cls, content: Any) -> Any:
        """One table is aligned with itself; by its sorted ids a run comes out the same whenever it is repeated."""
        if isinstance(content, dict) and isinstance(content.get("job"), dict):
            return {**content, "job": {"alignment": "sorted-ids", **content["job"]}}
        return content

    @property
    def label_holder(self) -> str:
        """The one party that has the labels."""
        return next(party.name for party in self.party if party.labels)

    def record(self, party: PartyTable) -> str:
        """The messages in the party's transcript; feature parties under audit record what they receive."""
        usual = "received" if self.audit is not None and not party.labels else "off"
        return party.record or usual

    @model_validator(mode="after")
    def _parties(self) -> ExperimentFile:
        names = [party.name for party in self.party]
        if len(set(names)) != len(names):
            raise ValueError("two parties have one name")
        if sum(party.labels for party in self.party) != 1:
            raise ValueError("exactly one [[party]] has labels = true")
        owner: dict[str, str] = {}
        for party in self.party:
            for column in party.columns or []:
                if column in owner:
                    raise ValueError(f"column {column!r} is claimed by {owner[column]} and by {party.name}")
                owner[column] = party.name
        if sum(party.share or 0 for party in self.party) > 1 + 1e-9:
            raise ValueError("the shares add up to more than 1")
        others = [party.name for party in self.party if not party.labels]
        if faults := foreign_dropout(self.job.params(), others):
            raise ValueError("; ".join(faults))
        if self.audit is not None:
            for party in self.party:
                if party.record == "off" and not party.labels:
                    raise ValueError(f"[audit] reads transcripts, but {party.name} has record = 'off'; leave it out")
        if self.job.seed + max(self.data.seeds) >= 1 << 63:
            raise ValueError("data.seed and job.seed add up to more than 2^63 - 1")
        return self
