"""The chain of an encrypted prediction: the label holder, the feature parties in the opening's order, the label holder.

Values travel along it encrypted, block by block, are masked on the way, and come back as sums. The cipher is one of two
(`label_end`, `member_end`): ciphertexts that add up, an entry of a record in each (`party.eini.entries`), or a lattice
scheme, a column of records in each (`party.eini.lattice`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from party.prediction.job import PredictionJob
from party.prediction.opened_model import OpenedModel
from party.prediction.tree_scoring import TreeScoring
from party.runtime.context import StepContext
from treetap.protocols.eini import ChainSizes
from treetap.protocols.key_options import KeyKind
from treetap.protocols.prediction import members_present, present
from treetap.protocols.registry import prediction_name
from treetap.trees.local_values import GoesLeft
from treetap.trees.paths import Floats
from treetap.wire.v2 import prediction_pb2

#: Name of the protocol → the module of its cipher; the lattice's needs native kernels.
CIPHERS = {"eini": "party.eini.entries", "eini-lattice": "party.eini.lattice"}
#: Shows how many records of the block have been sent.
Advance = Callable[[int], None]


@dataclass(frozen=True)
class ChainPlace:
    """The place of a feature party: the party before it, the one after it, and the label holder."""

    party: str
    before: str
    after: str
    label_holder: str

    @classmethod
    def of(cls, party: str, opening: prediction_pb2.OpenModel) -> ChainPlace:
        """The place of a party in the chain of an opening."""
        chain = [opening.recipient, *present(opening), opening.recipient]
        place = chain.index(party)
        return cls(party, chain[place - 1], chain[place + 1], opening.recipient)

    @property
    def first(self) -> bool:
        """True if ciphertexts come from the label holder."""
        return self.before == self.label_holder

    @property
    def last(self) -> bool:
        """True if sums go to the label holder."""
        return self.after == self.label_holder


class SumsEnd(Protocol):
    """The label holder's end of the chain for one kind of values: those of scores, or of attributions."""

    def values(self, goes_left: GoesLeft, n: int) -> Any:
        """W_k of n records by the own splits (equation 8), as `send` takes it."""
        ...

    async def send(self, values: Any, number: int) -> None:
        """Encrypt a block, and send it meanwhile to the first of the chain."""
        ...

    async def receive(self, number: int) -> Floats:
        """The sums of the block that was sent, as the last of the chain returns them; opened (equation 14)."""
        ...


class AttributionsEnd(SumsEnd, Protocol):
    """The same for attributions, (n, players, outputs)."""

    def check_complete(self, number: int, values: Floats, scores: Floats) -> None:
        """`Malformed` unless expected score and values add up to the score, as they do under the score's masks."""
        ...

    def write(self, path: Path, column: pa.Field, parts: Iterable[tuple[pa.Array, Floats, Floats]]) -> None:
        """Write part by part the file: ids (n,), in a `column`, scores (n, outputs) and attributions of n records."""
        ...


class LabelEnd(Protocol):
    """The label holder's end of the chain under one cipher: the key of this prediction, in memory only.

    Attributes:
        scores: sums of leaf weights (n, outputs).
        attributions: Shapley values (n, players, outputs); None where they are not asked for.
    """

    @property
    def scores(self) -> SumsEnd: ...

    @property
    def attributions(self) -> AttributionsEnd | None: ...

    def lay_out(self) -> None:
        """Lay out the values, which follow from the model alone; slow."""
        ...

    async def make_keys(self) -> None:
        """Check the own policy; make a key, and send it and the layout to every feature party."""
        ...

    async def close(self) -> None:
        """Make the workers forget the key, of which there is no other copy."""
        ...


class Masking(Protocol):
    """A feature party's place in the chain for one kind of values."""

    async def pass_on(self, goes_left: GoesLeft, n: int, number: int) -> None:
        """Mask a block of n records by the own splits (equations 9 and 13) and pass it on re-randomised.

        The last of the chain sums (equation 14), and hides from the key's owner what the sums are made of.
        """
        ...


class MemberEnd(Protocol):
    """A feature party's place in the chain under one cipher."""

    @property
    def scores(self) -> Masking | None: ...

    @property
    def attributions(self) -> Masking | None: ...

    async def take_key(self) -> None:
        """Take the key and the layout of this prediction, and check both against the own shard and policy."""
        ...

    async def close(self) -> None:
        """Make the workers forget the ciphertexts."""
        ...


def sizes_of(job: PredictionJob) -> ChainSizes:
    """The sizes of a prediction along a chain, as far as they follow from its opening."""
    opening = job.opening
    key = KeyKind.of(opening.parameters.eini) if prediction_name(opening) == "eini" else None
    members = members_present(opening, job.context.coordinator)
    return ChainSizes(members=members, key=key, block=max(1, opening.block))


def label_end(job: PredictionJob, scoring: TreeScoring, sizes: ChainSizes, advance: Advance) -> LabelEnd:
    """The label holder's end under the cipher of an opening."""
    end: LabelEnd = _cipher(job).LabelHolderEnd(job, scoring, sizes, advance)
    return end


def member_end(job: PredictionJob, opened: OpenedModel, sizes: ChainSizes, place: ChainPlace) -> MemberEnd:
    """A feature party's place under the cipher of an opening."""
    end: MemberEnd = _cipher(job).FeaturePartyEnd(job, opened, sizes, place)
    return end


def _cipher(job: PredictionJob) -> Any:
    return importlib.import_module(CIPHERS[prediction_name(job.opening)])


async def check_hidden(
    context: StepContext, scoring: TreeScoring, spare: Callable[[GoesLeft, int], Floats], beside: str = ""
) -> None:
    """Label holder: `Refused` where the own policy wants more leaves left open to some record.

    `spare`: bits by which the candidate leaves of n records exceed the possible sums, (n,); `beside`: what is sent too.
    """
    if context.policy.min_candidate_bits is not None:
        bits = await context.offload(lambda: scoring.trees.count(scoring.records.wanted, spare))
        fault = f"{beside}the candidate leaves of some record have fewer bits to spare than that"
        context.policy.check_paths(context.party, bits, fault)


def check_hides(context: StepContext, spare: float, beyond: str = "a sum") -> None:
    """Feature party: `Refused` where the own policy wants more leaves left open; `spare`: bits `beyond` the sums."""
    fault = f"its own splits of this model leave {spare:.1f} bits beyond those of {beyond}"
    context.policy.check_paths(context.party, np.array([spare]), fault)
