"""The audit document: the results of attacks on the parties' transcripts, which the commands print and reports show.

`plain` gives the JSON object. An unknown field is an error, and so is a number that JSON cannot express (infinity,
NaN).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, AwareDatetime, Field, ValidationError, model_validator

from treetap.attacks.advice.names import Advice
from treetap.attacks.id2graph.schema import AttackResult, KnownLabelFigures
from treetap.attacks.networks.schema import GainFigures, NetworkFigures, VictimFigures
from treetap.attacks.pivodl.schema import (
    DifferentialFigures,
    DisclosedFigures,
    GainInversionFigures,
    LabelGuess,
    SourceColumns,
)
from treetap.attacks.published.schema import PredictionFigures
from treetap.attacks.registry import GROUPING, Needs, rows
from treetap.attacks.schema import Count, Findings
from treetap.attacks.sums.schema import ColumnFigures, MarkedCells
from treetap.attacks.verdict import Verdict
from treetap.attacks.view.opened_sums import Room
from treetap.errors import BadInput
from treetap.protocols.registry import TRAINING
from treetap.wire.disclosure import CLASSES

#: Source of a known node: a message with its records, the party's own split, or a known node minus a known child.
Source = Literal["received", "own", "difference"]
#: Fields of a party with the results of PIVODL's attacks.
PIVODL_ATTACKS = tuple(rows(Needs.SHARED_LABELS))


def _one_of(names: Collection[str], what: str) -> AfterValidator:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"{name!r} is no {what}")
        return name

    return AfterValidator(check)


#: Name of an attack that groups records.
AttackName = Annotated[str, _one_of(GROUPING, "attack that groups records")]


class _Row(Findings):
    """Messages of one step that carried a disclosure class, and the bytes of that class in them."""

    disclosure: Annotated[str, _one_of(CLASSES, "disclosure class")] = Field(alias="class")
    step: str
    messages: Count
    bytes: Count


class ReceivedRow(_Row):
    """Messages that a party received."""

    sender: str = Field(alias="from")


class SentRow(_Row):
    """Messages that a party sent."""

    receiver: str = Field(alias="to")


class TrafficRow(_Row):
    """Messages that one process sent another, according to a transcript."""

    sender: str = Field(alias="from")
    receiver: str = Field(alias="to")


class BoundRow(Findings):
    """The bound on one known node's leakage of the label, in nats; `nats`: the larger of node's and complement's."""

    tree: Count
    node: int = Field(ge=1)
    depth: Count
    records: Count
    nats: float
    node_nats: float
    complement_nats: float
    source: Source


class SignatureStep(Findings):
    """The signature after the trees up to this one; informations are null without labels."""

    tree: Count
    signatures: Count
    mutual_information: float | None
    by_chance: float | None


class Signature(Findings):
    """The number of signatures by a party's known nodes, and their plug-in information on the label, in nats.

    `by_chance` is its mean under random permutations of the labels.
    """

    signatures: Count
    label_entropy: float | None
    mutual_information: float | None
    by_chance: float | None
    by_tree: list[SignatureStep]


class TreeNode(Findings):
    """A node by heap number (the root is 1, children of u are 2u and 2u + 1) as one party sees it.

    `source` is null, as are `records`, where the node is hidden. `leaf`: known without known children. `feature` and
    `threshold` are of the party's own splits (left: below the threshold; null: only missing values part from the
    rest). `categories`: of a split of categories, which has no threshold, the codes that go right. `classes`: records
    by class, null without labels.
    """

    OMITTED: ClassVar = ("categories",)

    node: int = Field(ge=1)
    depth: Count
    known: bool
    source: Literal["root", "received", "own", "difference"] | None
    records: Count | None
    leaf: bool
    feature: str | None
    threshold: float | None
    classes: list[Count] | None
    categories: list[Count] | None = None


class SeenTree(Findings):
    """One tree, its nodes by number."""

    tree: Count
    nodes: list[TreeNode]


class Party(Findings):
    """One attacker: its traffic and its attacks' results. `faults`: gaps of the transcript behind all figures.

    `reasons`: attacks that group records and used nothing, whose figures are of no set, or a part, each with why.
    `signed`: what the transcript's signatures show. Of a party of a training of trees `known_labels`. Of a PIVODL job,
    and only of such a one, `label_guess` and the fields after it up to `source_columns`; of a feature party of a split
    network, and only of such a one, `network`; of a label holder `victims`: feature party → attacks on its columns; of
    one of trees `columns_read` and `marks_read`. `room`: of the plaintexts of trees, what crafted g and h could tell.
    Of a job whose records are the label holder's `records`: the party's own, and `membership`: the AUC by which having
    a record ranks the labels of all.
    """

    OMITTED: ClassVar = (
        *("reasons", "known_labels", *PIVODL_ATTACKS, "network", "victims", "columns_read", "marks_read", "room"),
        *("records", "membership"),
    )

    transcript: str
    columns: list[str]
    received: list[ReceivedRow]
    sent: list[SentRow]
    attacks: dict[AttackName, AttackResult]
    reasons: dict[AttackName, str] | None = None
    bounds: list[BoundRow]
    signature: Signature
    trees: list[SeenTree]
    faults: list[str]
    signed: str
    known_labels: KnownLabelFigures | None = None
    label_guess: LabelGuess | None = None
    gain_inversion: GainInversionFigures | None = None
    differential: DifferentialFigures | None = None
    disclosed: DisclosedFigures | None = None
    source_columns: SourceColumns | None = None
    network: NetworkFigures | None = None
    victims: dict[str, VictimFigures] | None = None
    columns_read: dict[str, ColumnFigures] | None = None
    marks_read: dict[str, MarkedCells] | None = None
    room: Room | None = None
    records: Count | None = None
    membership: float | None = None


class Document(Findings):
    """One job's audit. `classes` is null for regression and without labels; `labelled` distinguishes the two.

    `title`: of the report, where it is not the job's name. `label_holder`: of a PIVODL job all parties with labels.
    `class_names`: the labels as their table has them, in the order of every count by class; null with `classes`.
    `verdicts`: what each party learned, of labels and of columns.
    `traffic` is the union over the transcripts at hand, each message counted once.
    `advice`: what lowers the attacks; null for regression.
    Of a split network `trees` and `max_depth` are 0, and `gain` is there, of no other job.
    `private`: of a job in which nobody opened sums of candidates true, of no other.
    `predictions`: name of a prediction → the attacks of its recipient; only where the audit names some.
    """

    OMITTED: ClassVar = ("gain", "predictions", "private", "title")

    job: str
    title: str | None = None
    protocol: Literal[tuple(TRAINING)]  # type: ignore[valid-type] # the registry is the one list
    label_holder: str
    private: Literal[True] | None = None
    attempt: Count
    records: Count
    classes: int | None = Field(ge=1)
    class_names: list[str] | None
    labelled: bool
    trees: Count
    max_depth: Count
    discount: float
    created: AwareDatetime
    treetap: str
    verdicts: list[Verdict]
    parties: dict[str, Party]
    traffic: list[TrafficRow]
    advice: Advice | None = None
    gain: GainFigures | None = None
    predictions: dict[str, PredictionFigures] | None = None

    @property
    def of_network(self) -> bool:
        """True for the audit of a split network."""
        return self.gain is not None

    @property
    def victims(self) -> dict[str, VictimFigures]:
        """Feature party → the label holder's attacks on its columns; none where no label holder is audited."""
        return {name: figures for party in self.parties.values() for name, figures in (party.victims or {}).items()}

    @property
    def columns_read(self) -> dict[str, ColumnFigures]:
        """Feature party → the label holder's attack on its columns by opened sums; of jobs of trees."""
        return {
            name: figures for party in self.parties.values() for name, figures in (party.columns_read or {}).items()
        }

    @property
    def on_labels(self) -> dict[str, Party]:
        """The parties whose attacks are on labels: all but a label holder whose attacks are on columns."""
        return {
            name: party for name, party in self.parties.items() if party.victims is None and party.columns_read is None
        }

    @model_validator(mode="after")
    def _named(self) -> Document:
        if self.classes != (None if self.class_names is None else len(self.class_names)):
            raise ValueError("class_names must name every class")
        return self


def parse(content: Document | Mapping[str, Any]) -> Document:
    """Read the document from a JSON object. Raises BadInput naming all wrong fields."""
    if isinstance(content, Document):
        return content
    try:
        return Document.model_validate(dict(content))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise BadInput(f"the audit document is not one that this version reads: {faults}") from None
