"""The audit document: the results of attacks on the parties' transcripts, which the commands print and reports show.

`plain` gives the JSON object. An unknown field is an error, and so is a number that JSON cannot express (infinity,
NaN).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from attacks.advice.results import Advice
from attacks.features.results import VictimFigures
from attacks.networks.results import GainFigures, NetworkFigures
from attacks.pivodl.results import DifferentialFigures, DisclosedFigures, GainInversionFigures, LabelGuess
from treetap.errors import BadInput
from treetap.protocols.registry import TRAINING
from treetap.wire.disclosure import CLASSES

AttackName = Literal["cl", "uni", "uni+cl", "id2graph", "id2graph-chunked", "id2graph-quotient"]
#: Source of a known node: a message with its records, the party's own split, or a known node minus a known child.
Source = Literal["received", "own", "difference"]
Count = Annotated[int, Field(ge=0)]
#: Fields of a party with the results of PIVODL's attacks.
PIVODL_ATTACKS = ("label_guess", "gain_inversion", "differential", "disclosed")


def _disclosure(name: str) -> str:
    if name not in CLASSES:
        raise ValueError(f"{name!r} is no disclosure class")
    return name


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)


class _Row(_Part):
    """Messages of one step that carried a disclosure class, and the bytes of that class in them."""

    disclosure: Annotated[str, AfterValidator(_disclosure)] = Field(alias="class")
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


class AttackResult(_Part):
    """One attack on one party's view. Scores compare its clusters with the labels: null where there are none.

    All figures but the lists are those after `after_trees` trees: the number with the largest V-measure, since an
    attacker may stop after any tree; without labels all trees; null for an attack that uses no tree. `accuracy` is that
    of the best one-to-one matching of clusters and classes; `named_accuracy` that of a matching by the order of their
    sizes. `groups`: communities or components before k-means, null for an attack that forms none. `by_tree`,
    `accuracy_by_tree`: V-measure and accuracy after the first tree, the first two, ...; null without labels, an entry
    null where it was not computed.
    """

    after_trees: Count | None
    v_measure: float | None
    homogeneity: float | None
    completeness: float | None
    ari: float | None
    nmi: float | None
    accuracy: float | None
    named_accuracy: float | None
    seconds: float
    groups: Count | None
    clusters: Count
    parameters: dict[str, Any]
    by_tree: list[float | None] | None
    accuracy_by_tree: list[float | None] | None

    def largest(self, measure: Literal["v_measure", "accuracy"]) -> tuple[int | None, float] | None:
        """The number of trees with the largest figure, the first of several, and that figure; None without scores.

        The number is None for an attack that uses no tree.
        """
        steps = self.by_tree if measure == "v_measure" else self.accuracy_by_tree
        steps_scored: list[tuple[int | None, float]] = [
            (trees, value) for trees, value in enumerate(steps or [], start=1) if value is not None
        ]
        whole: float | None = getattr(self, measure)
        if self.after_trees is None or not steps_scored:
            return None if whole is None else (self.after_trees, whole)
        return max(steps_scored, key=lambda figure: figure[1])


class BoundRow(_Part):
    """The bound on one known node's leakage of the label, in nats; `nats`: the larger of node's and complement's."""

    tree: Count
    node: int = Field(ge=1)
    depth: Count
    records: Count
    nats: float
    node_nats: float
    complement_nats: float
    source: Source


class SignatureStep(_Part):
    """The signature after the trees up to this one; informations are null without labels."""

    tree: Count
    signatures: Count
    mutual_information: float | None
    by_chance: float | None


class Signature(_Part):
    """The number of signatures by a party's known nodes, and their plug-in information on the label, in nats.

    `by_chance` is its mean under random permutations of the labels.
    """

    signatures: Count
    label_entropy: float | None
    mutual_information: float | None
    by_chance: float | None
    by_tree: list[SignatureStep]


class TreeNode(_Part):
    """A node by heap number (the root is 1, children of u are 2u and 2u + 1) as one party sees it.

    `source` is null, as are `records`, where the node is hidden. `leaf`: known without known children. `feature` and
    `threshold` are of the party's own splits (left: below the threshold; null: only missing values part from the
    rest). `categories`: of a split of categories, which has no threshold, the codes that go right. `classes`: records
    by class, null without labels.
    """

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

    @model_serializer(mode="wrap")
    def _without_categories(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what splits of numbers do not have."""
        found: dict[str, Any] = plain(self)
        return {key: value for key, value in found.items() if key != "categories" or value is not None}


class SeenTree(_Part):
    """One tree, its nodes by number."""

    tree: Count
    nodes: list[TreeNode]


class Party(_Part):
    """One attacker: its traffic and its attacks' results. `faults`: gaps of the transcript behind all figures.

    `signed`: what the transcript's signatures show. Of a PIVODL job, and only of such a one, `label_guess` and the
    fields after it up to `disclosed`; of a feature party of a split network, and only of such a one, `network`; of a
    label holder `victims`: feature party → attacks on its columns.
    """

    transcript: str
    columns: list[str]
    received: list[ReceivedRow]
    sent: list[SentRow]
    attacks: dict[AttackName, AttackResult]
    bounds: list[BoundRow]
    signature: Signature
    trees: list[SeenTree]
    faults: list[str]
    signed: str
    label_guess: LabelGuess | None = None
    gain_inversion: GainInversionFigures | None = None
    differential: DifferentialFigures | None = None
    disclosed: DisclosedFigures | None = None
    network: NetworkFigures | None = None
    victims: dict[str, VictimFigures] | None = None

    @property
    def of_pivodl(self) -> dict[str, Any]:
        """The results of PIVODL's attacks by name; none of another protocol's job."""
        return {name: found for name in PIVODL_ATTACKS if (found := getattr(self, name)) is not None}

    @model_serializer(mode="wrap")
    def _without_absent(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what other protocols do not have: their documents stay as they were."""
        found: dict[str, Any] = plain(self)
        optional = (*PIVODL_ATTACKS, "network", "victims")
        return {key: value for key, value in found.items() if key not in optional or value is not None}


class Document(_Part):
    """One job's audit. `classes` is null for regression and without labels; `labelled` distinguishes the two.

    `label_holder`: of a PIVODL job all parties with labels.
    `class_names`: the labels as their table has them, in the order of every count by class; null with `classes`.
    `traffic` is the union over the transcripts at hand, each message counted once.
    `advice`: what lowers the attacks; null for regression and for split networks.
    Of a split network `trees` and `max_depth` are 0, and `gain` is there, of no other job.
    """

    job: str
    protocol: Literal[tuple(TRAINING)]  # type: ignore[valid-type] # the registry is the one list
    label_holder: str
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
    parties: dict[str, Party]
    traffic: list[TrafficRow]
    advice: Advice | None = None
    gain: GainFigures | None = None

    @property
    def of_network(self) -> bool:
        """True for the audit of a split network."""
        return self.gain is not None

    @property
    def victims(self) -> dict[str, VictimFigures]:
        """Feature party → the label holder's attacks on its columns; none where no label holder is audited."""
        return {name: each for party in self.parties.values() for name, each in (party.victims or {}).items()}

    @property
    def on_labels(self) -> dict[str, Party]:
        """The parties whose attacks are on labels: all but a label holder whose attacks are on columns."""
        return {name: party for name, party in self.parties.items() if party.victims is None}

    @model_serializer(mode="wrap")
    def _without_gain(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what only split networks have."""
        found: dict[str, Any] = plain(self)
        return {key: value for key, value in found.items() if key != "gain" or value is not None}

    @model_validator(mode="after")
    def _named(self) -> Document:
        if self.classes != (None if self.class_names is None else len(self.class_names)):
            raise ValueError("class_names must name every class")
        return self

    def plain(self) -> dict[str, Any]:
        """The document as JSON types, under the names of the JSON object."""
        return self.model_dump(mode="json", by_alias=True)


def parse(content: Document | Mapping[str, Any]) -> Document:
    """Read the document from a JSON object. Raises BadInput naming all wrong fields."""
    if isinstance(content, Document):
        return content
    try:
        return Document.model_validate(dict(content))
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise BadInput(f"the audit document is not one that this version reads: {faults}") from None
