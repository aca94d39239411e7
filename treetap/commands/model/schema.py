"""The form of a described model: a file that was made to mislead ends here, not where it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from treetap.errors import DataError
from treetap.strict import Name
from treetap.trees.ensemble import ROOT

Node = Annotated[int, Field(ge=ROOT, lt=2**32)]
Count = Annotated[int, Field(ge=0, lt=2**53)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, defer_build=True)


class _Split(_Part):
    node: Node
    handle: Count
    feature: str | None = None
    left: str | None = None


class _DrawnSplit(_Split):
    owner: str
    gain: float
    cover: float


class _Place(_Part):
    node: Node


class _Leaf(_Place):
    weights: list[float]


class _Shape(_Part):
    """A tree whose splits and leaves all parties know."""

    splits: Sequence[_Split]
    leaves: Sequence[_Place]
    root: Node = ROOT

    @model_validator(mode="after")
    def _is_a_tree(self) -> _Shape:
        inner, outer = [split.node for split in self.splits], [leaf.node for leaf in self.leaves]
        expected = [self.root, *(child for node in inner for child in (2 * node, 2 * node + 1))]
        if sorted(expected) != sorted([*inner, *outer]):
            raise ValueError("its nodes make no tree")
        return self


class _Local(_Shape):
    """A subtree that the label holder alone knows."""

    splits: list[_DrawnSplit]
    leaves: list[_Leaf]


class _DrawnTree(_Shape):
    tree: Count
    outputs: list[Count]
    splits: list[_DrawnSplit]
    leaves: list[_Leaf]
    local: list[_Local] = []


class _Branch(_Part):
    handle: Count
    left: bool


class _ListedTree(_Part):
    tree: Count
    splits: list[_Split]
    leaves: list[list[_Branch]]


class _Rank(_Part):
    name: str
    weight: Count


class _Gain(_Rank):
    gain: float
    cover: float
    total_gain: float


class _Model(_Part):
    model: Name
    party: str
    protocol: str


class _LabelHolder(_Model):
    role: Literal["label_holder"]
    label_holder: str
    feature_parties: list[str]
    objective: str
    classes: list[bool | int | float | str]
    params: dict[str, Any]
    metrics: dict[str, float | None]
    history: list[dict[str, float | None]] = []
    used_trees: Count
    importance: dict[str, list[_Gain]]
    values: str | None = None
    min_cell_records: dict[str, Count] = {}
    column_privacy: dict[str, dict[str, float]] = {}
    trees: list[_DrawnTree]


class _FeatureParty(_Model):
    role: Literal["feature_party"]
    label_holder: str
    importance: dict[str, list[_Rank]]
    column_privacy: dict[str, dict[str, float]] = {}
    trees: list[_ListedTree]


class _PartySplit(_Split):
    source: str
    opener: str


class _PartyLeaf(_Place):
    keeper: str
    weights: list[float] | None = None


class _PartyTree(_Shape):
    tree: Count
    splits: list[_PartySplit]
    leaves: list[_PartyLeaf]


class _Kept(_Part):
    name: str
    leaves: Count


class _Party(_Model):
    role: Literal["party"]
    aggregator: str
    parties: list[str]
    objective: str
    classes: list[str]
    params: dict[str, Any]
    privacy: list[str]
    metrics: dict[str, float | None]
    history: list[dict[str, float | None]] = []
    used_trees: Count
    labelled_records: Count
    importance: dict[str, list[_Rank]]
    weights: list[_Kept]
    trees: list[_PartyTree]


class _Input(_Part):
    name: str
    mean: float
    deviation: float
    indicator: bool


class _Image(_Part):
    name: str
    shape: list[Count]
    mean: list[float]
    deviation: list[float]


class _Inputs(_Part):
    columns: list[_Input]
    images: list[_Image]


class _Layer(_Part):
    name: str
    shape: list[Count]
    numbers: Count


class _Models(_Part):
    name: str
    settings: dict[str, Any]
    weights: Count
    layers: list[_Layer]


class _Network(_Model):
    label_holder: str
    epochs: Count
    wire_type: str
    threads: Count
    reproducible: bool
    inputs: _Inputs
    networks: list[_Models]


class _LabelHoldersNetwork(_Network):
    feature_parties: list[str]
    widths: dict[str, Count]
    party_dropout: dict[str, float]
    objective: str
    classes: list[str]
    params: dict[str, Any]
    metrics: dict[str, float | None]
    history: list[dict[str, float | None]] = []
    best_epoch: Count


#: Role → description of a model of trees, and of a network.
_NETWORKS: dict[str, TypeAdapter[Any]] = {
    "label_holder": TypeAdapter(_LabelHoldersNetwork),
    "feature_party": TypeAdapter(_Network),
}
_ROLES: dict[str, TypeAdapter[Any]] = {
    "label_holder": TypeAdapter(_LabelHolder),
    "feature_party": TypeAdapter(_FeatureParty),
    "party": TypeAdapter(_Party),
}


_HISTORY: TypeAdapter[list[dict[str, float | None]]] = TypeAdapter(
    list[dict[str, float | None]], config=ConfigDict(strict=True, allow_inf_nan=False)
)


def check_history(rounds: list[dict[str, Any]], folder: Path) -> list[dict[str, float | None]]:
    """Check the metrics after each round of the model in `folder`. Raises DataError."""
    try:
        return _HISTORY.validate_python(rounds)
    except ValidationError:
        raise DataError(f"{folder}: is not a model that this command can read: its history is damaged") from None


def check(described: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Check the description of the model in `folder`. Raises DataError, which names the first wrong field."""
    try:
        (_NETWORKS if "networks" in described else _ROLES)[described["role"]].validate_python(described)
    except ValidationError as failure:
        first = failure.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the model"
        raise DataError(f"{folder}: is not a model that this command can read: {where}: {first['msg']}") from None
    return described
