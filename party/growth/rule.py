"""Features of a job as rules: what one does at the places of a training where features have a say.

A rule is a class in the feature's own file and a line of `RULES`. A job has the rules that its parameters and the
party's files ask for, and those that answer to what other parties have; it imports no others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from treetap.arrays import Array, Bools, Ints
from treetap.models.line_file import Line
from treetap.party.config import PartyConfig
from treetap.party.growth.feature_party import OwnTree
from treetap.party.growth.split_table import SplitTable
from treetap.party.growth.stored_trees import LabelState
from treetap.party.runtime.context import Rows, StepContext
from treetap.party.setup.labelled_table import LabelledTable
from treetap.party.setup.steps import ReceivedKey
from treetap.protocols.growth import TreeSizes, sums_shared
from treetap.trees.ensemble import Tree
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import TreeParams
from treetap.trees.withholding import InformationLimit
from treetap.wire.v2 import setup_pb2


@dataclass(frozen=True)
class Part:
    """A party's part of a job, of which its rules are made.

    `layout`: see `NoisedLayout`, where there may be noise. `choice`: the label holder's, where sums are shared.
    """

    config: PartyConfig
    context: StepContext
    spec: setup_pb2.JobSpec
    params: TreeParams
    layout: Any = None
    choice: Any = None

    @property
    def labelled(self) -> bool:
        """True at the label holder."""
        return self.spec.aggregator == self.config.name


@dataclass(frozen=True)
class Summed:
    """What is summed for a tree.

    Attributes:
        tree: its number.
        values: (n, S) of the training's records, the criterion's slots first.
        drawn: (n,) the records that the tree draws.
        counts: the first slots are the classes of these.
        limit: on what other parties may see; `every`: it counts records too that the tree does not draw.
        alone: the label holder grows the tree by itself.
        left_first: of siblings the left one is summed.
        padded: other parties are asked for all nodes of a full tree.
        width: the criterion's slots, where others than classes follow; None: no others do.
    """

    tree: int
    values: Ints
    drawn: Bools
    counts: bool = False
    limit: InformationLimit | None = None
    every: bool = False
    alone: bool = False
    left_first: bool = False
    padded: bool = False
    width: int | None = None


@dataclass
class Draft:
    """A model about to be published.

    Attributes:
        entries: of its manifest.
        files: its files, by name.
        lines: its stored trees; `trees`: the same at the label holder, `values` with the values that predictions use.
        records: places of the common records in the party's table.
        data: at the label holder, these with their labels; `state`: the scores after the last tree.
    """

    entries: dict[str, Any]
    files: dict[str, bytes]
    lines: Sequence[Line]
    records: Rows
    trees: Sequence[Tree] = ()
    values: Sequence[Tree] = ()
    data: LabelledTable | None = None
    state: LabelState | None = None


class Rule:
    """What a feature does at the label holder or at a feature party: nothing where its own file does not say more."""

    #: The number of first trees that the label holder grows by itself.
    alone = 0
    #: Every column of a feature party has a bin for missing values.
    missing_bins = False
    #: Sums of some party are not exact; known to a feature party once the key has come.
    inexact = False
    #: A feature party's trees, where they are of another kind.
    tree: type[OwnTree] | None = None

    def __init__(self, part: Part) -> None:
        self.part = part

    def check(self, data: LabelledTable, before: int) -> None:
        """Refuse labels before records are aligned; `before`: the trees of a base model."""

    def resumed(self, stored: int) -> None:
        """Look for what lies beside so many stored trees."""

    def selected(self, data: LabelledTable) -> None:
        """Take the labels of the common records."""

    def drawn(self, first: Rows) -> None:
        """Refuse the draws (N,) of a first tree, at a feature party."""

    def binned(self, table: SplitTable) -> None:
        """Take the party's binned columns, or bin them anew: in no more bins, which bound messages already."""

    async def heard(self, sizes: TreeSizes, trees: int, slots: int) -> None:
        """Take what feature parties have said of so many trees, at the label holder, before slots have a layout."""

    def rooms(self) -> Sequence[SumNoise]:
        """What slots have room for beside sums."""
        return ()

    def keyed(self, key: ReceivedKey) -> None:
        """Refuse a layout, at a feature party."""

    async def begin(self) -> None:
        """Look at what has come since the layout was made, before the label holder begins a tree."""

    def values(self, summed: Summed) -> Summed:
        """Change what is summed for a tree."""
        return summed

    def planted(self, growing: GrowingTree, *, alone: bool) -> None:
        """A tree begins, of which other parties know the root; say what its sums will be, if there are others'."""

    async def opened(self, growing: GrowingTree, taken: Mapping[str, Ints]) -> bool:  # noqa: ARG002 - most do not look
        """Look at the opened sums of a stage, (nodes, candidates, S) by party; True: no node is split by them."""
        return False

    def constrained(self, parties: Sequence[str]) -> None:
        """Refuse constraints of these parties."""

    def release(self, party: str, tree: int, sets: Mapping[int, Rows]) -> None:
        """Look at the sets of records, by node, that a party comes to know."""

    def finish(self, tree: int, growing: GrowingTree) -> None:
        """Take a finished tree before it is stored: other parties know all that they come to know of it."""

    def kept(self) -> Line:
        """The entries beside a stored tree, each a mapping; the manifest has those of all trees as one."""
        return {}

    def arrays(self) -> dict[str, Array]:
        """The arrays that are stored with the scores after a tree."""
        return {}

    async def publish(self, draft: Draft) -> None:
        """Add files, and entries of the manifest."""


#: Class of a rule → whether a part of a job has it, in the order in which they have their say.
RULES: Mapping[str, Callable[[Part], bool]] = {
    "treetap.party.growth.rules.withholding.Withheld": lambda part: part.labelled,
    "treetap.party.growth.rules.screening.Screening": lambda part: part.labelled and part.spec.screen,
    "treetap.party.growth.withheld.Hidden": lambda part: part.params.withheld,
    "treetap.party.growth.rules.repair.Repair": lambda part: part.labelled and part.config.defences.private_values,
    "treetap.party.growth.rules.released_sets.ReleasedSets": lambda part: part.labelled,
    "treetap.party.growth.rules.repair.CleanMetrics": lambda part: (
        part.labelled and part.config.defences.label_dp is not None
    ),
    "treetap.party.growth.rules.evaluated.Evaluated": lambda _: True,
    "treetap.party.growth.rules.cells.Merged": lambda part: not part.labelled,
    "treetap.party.growth.rules.placed.PlacedCells": lambda part: not part.labelled and part.params.additive,
    "treetap.party.growth.column_noise.NoisedParties": lambda part: part.labelled and part.layout is not None,
}


#: Class of a part in the choice of splits on shares, at the label holder and at a feature party.
CHOICES = {
    True: "treetap.party.growth.shared_choice.LabelHolderChoice",
    False: "treetap.party.growth.shared_choice.FeaturePartyChoice",
}


def rules_of(part: Part) -> list[Rule]:
    """The rules of a part of a job."""
    return [_class(name)(part) for name, has in RULES.items() if has(part)]


def choice_of(part: Part) -> Any:
    """The part in the choice of splits of a job whose sums are shared; None of others."""
    return _class(CHOICES[part.labelled])(part.context, part.spec) if sums_shared(part.spec) else None


def _class(name: str) -> Any:
    module, _, named = name.rpartition(".")
    return getattr(importlib.import_module(module), named)
