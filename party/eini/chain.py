"""The chain of an encrypted prediction: the label holder, the feature parties in the opening's order, the label holder.

Values travel along it encrypted, block by block, are masked on the way, and come back as sums. The cipher is one of
two: ciphertexts that add up, an entry of a record in each (`treetap.party.eini.entries`), or a lattice scheme, a column
of records in each (`treetap.party.eini.lattice`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from treetap.party.prediction.tree_scoring import TreeScoring
from treetap.party.protocols import PredictionJob
from treetap.party.runtime.context import StepContext
from treetap.protocols.eini import ChainSizes
from treetap.protocols.key_options import PAILLIER, KeyKind
from treetap.protocols.prediction import present
from treetap.protocols.registry import prediction_name
from treetap.trees.local_values import GoesLeft
from treetap.trees.paths import Floats
from treetap.wire.v2 import prediction_pb2

#: Name of the protocol → the module of its cipher; the lattice's needs native kernels.
CIPHERS = {"eini": "treetap.party.eini.entries", "eini-lattice": "treetap.party.eini.lattice"}
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


def sizes_of(job: PredictionJob) -> ChainSizes:
    """The sizes of a prediction along a chain, as far as they follow from its opening."""
    opening = job.opening
    key = KeyKind(PAILLIER, opening.parameters.eini.key_bits) if prediction_name(opening) == "eini" else None
    return ChainSizes(members=job.members, key=key, block=max(1, opening.block))


def cipher_of(job: PredictionJob) -> Any:
    """The module of the cipher: `LabelHolderEnd` and `FeaturePartyEnd` are what the roles have of it.

    Either end has `scores`, and `attributions` if they are asked for: sums of leaf weights (n, outputs) and Shapley
    values (n, players, outputs) at the label holder, masks of both at a feature party. The label holder's lays the
    values out and makes a key, which is in memory only; a feature party's takes and checks both.
    """
    return importlib.import_module(CIPHERS[prediction_name(job.opening)])


async def check_hidden(
    context: StepContext, scoring: TreeScoring, spare: Callable[[GoesLeft, int], Floats], beside: str = ""
) -> None:
    """Label holder: `Refused` where the own policy wants more leaves left open to some record.

    `spare`: bits by which the candidate leaves of n records exceed the possible sums, (n,); `beside`: what is sent too.
    """
    if context.policy.columns.min_candidate_bits is not None:
        bits = await context.offload(lambda: scoring.trees.count(scoring.records.wanted, spare))
        fault = f"{beside}the candidate leaves of some record have fewer bits to spare than that"
        context.policy.check_paths(context.party, bits, fault)


def check_hides(context: StepContext, spare: float, beyond: str = "a sum") -> None:
    """Feature party: `Refused` where the own policy wants more leaves left open; `spare`: bits `beyond` the sums."""
    fault = f"its own splits of this model leave {spare:.1f} bits beyond those of {beyond}"
    context.policy.check_paths(context.party, np.array([spare]), fault)
