"""The commitment to a leaf table: made by the label holder of trees after the last one, kept by every feature party.

A prediction by Fed-EINI begins with it: a feature party takes part only with the one that it has kept. So the label
holder cannot show an auditor another table than the one of the training. That a query used this table does not follow.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from party.runtime.context import StepContext
from treetap.errors import Malformed, Refused
from treetap.models.leaf_table import (
    COMMITMENT,
    COMMITMENT_BYTES,
    KEY_BYTES,
    LEAF_KEY,
    TrainedJob,
    commitment,
    leaf_table,
)
from treetap.process.together import together
from treetap.trees.ensemble import Tree
from treetap.wire.v2 import setup_pb2

log = logging.getLogger(__name__)


def commit(context: StepContext, summary: Mapping[str, Any], trees: Sequence[Tree]) -> str:
    """The label holder's commitment to a job's trees, in hexadecimal: the same one at each attempt.

    `summary`: the part of the manifest beside trees and columns; `trees`: with the weights that predictions use. The
    key is drawn once for the job, and is on disk before the commitment is sent.
    """
    store = context.store
    lines = store.lines(LEAF_KEY)
    if not lines.count():
        lines.put({"key": secrets.token_hex(KEY_BYTES)}, 0)
    job = TrainedJob(context.job, str(store.noted("submission")), str(store.noted("digest")), context.party)
    return commitment(bytes.fromhex(lines.read()[0]["key"]), leaf_table(job, summary, trees)).hex()


async def send_commitment(context: StepContext, parties: Sequence[str], made: str, round: int = 0) -> None:
    """Send it to the feature parties; empty where the model has none."""
    body = setup_pb2.LeafCommitment(commitment=bytes.fromhex(made))
    await together(*(context.outbox.send(party, "leaf_commitment", [body], round=round) for party in parties))


async def take_commitment(context: StepContext, label_holder: str, round: int = 0) -> str:
    """The label holder's, in hexadecimal; empty where the model has none. Raises Malformed for one of wrong length."""
    made: bytes = (await context.mailbox.only(label_holder, "leaf_commitment", round)).commitment
    if made and len(made) != COMMITMENT_BYTES:
        raise Malformed(
            f"{label_holder} has sent a commitment to leaves of {len(made)} bytes; it has {COMMITMENT_BYTES}"
        )
    return made.hex()


def check_commitment(context: StepContext, label_holder: str, manifest: Mapping[str, Any], made: str) -> None:
    """`Refused` unless a commitment is the one that was kept with this party's part of the model."""
    kept, model = str(manifest.get(COMMITMENT, "")), manifest["job"]
    if made != kept:
        raise Refused(
            f"{label_holder} has committed itself to other leaves of model {model} than {context.party} has kept "
            f"({made[:12] or 'none'}, kept {kept[:12] or 'none'}): its part of the model is another one; bring a "
            f"back-up of it back at {label_holder}, or train again"
        )
    if not kept:
        log.info("job %s: model %s has no commitment to its leaves", context.job, model)
