"""The leaf table of a model of trees, and the commitment that fixes it: HMAC-SHA-256 under a random key of 256 bits.

The table has all that a score takes from the label holder's part alone: the leaves of each tree with their weights,
those of subtrees that it grew alone too, base margins, and the trees that predictions use. Its bytes are sorted JSON,
in which numbers read back exactly. The commitment hides the table while the key is secret, and binds the label holder
to both: docs/cryptography.md.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from treetap.errors import BadInput, DataError
from treetap.models.store import read_job, read_model, read_repaired
from treetap.models.valued_trees import valued_trees
from treetap.trees.ensemble import Leaf, Tree

#: The label holder's file of the key, one JSON line, beside the shard.
LEAF_KEY = "leaf_key.jsonl"
#: Entry of a manifest, at every party of the training: the commitment, in hexadecimal.
COMMITMENT = "leaf_commitment"
#: Lengths in bytes.
KEY_BYTES = COMMITMENT_BYTES = 32
_PURPOSE = b"treetap leaf table 1\n"  # raised with every change of the table's form


@dataclass(frozen=True)
class TrainedJob:
    """The training that a table is of.

    Attributes:
        name: of the job.
        submission: the nonce of its submission.
        digest: of its document, in hexadecimal.
        label_holder: the party that has the table.
    """

    name: str
    submission: str
    digest: str
    label_holder: str


def leaf_table(job: TrainedJob, summary: Mapping[str, Any], trees: Sequence[Tree]) -> dict[str, Any]:
    """The table, as JSON types.

    `summary`: the label holder's manifest, or its part beside trees and columns. `trees`: all of them, with the weights
    that predictions use.
    """
    own = ("objective", "params", "base_margin", "best_round", "trees_per_round")
    return {
        "job": asdict(job),
        **{name: summary[name] for name in own},
        "averaged": bool(summary.get("averaged", False)),
        "trees": [
            {
                "index": tree.index,
                "outputs": list(tree.outputs),
                "padded": tree.padded,
                "leaves": _leaves(tree.leaves),
                "local": [{"root": part.root, "leaves": _leaves(part.leaves)} for part in tree.local],
            }
            for tree in trees
        ],
    }


def commitment(key: bytes, table: Mapping[str, Any]) -> bytes:
    """The commitment to a table under a key of 32 bytes, 32 bytes."""
    assert len(key) == KEY_BYTES  # shorter ones are padded by HMAC, so that two keys could be one
    text = json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hmac.new(key, _PURPOSE + text.encode(), hashlib.sha256).digest()


def own_table(folder: Path) -> tuple[bytes, dict[str, Any]]:
    """The key and the table of a model that a label holder has published, computed anew from its files.

    Raises:
        BadInput: the model is a feature party's part, or has no commitment.
        DataError: its files are not what was published, or not what the commitment is to.
    """
    manifest, shard = read_model(folder)
    if LEAF_KEY not in manifest["files"]:
        raise BadInput(f"{folder}: this part of a model has no key of a commitment to leaves: name the label holder's")
    party, submission = str(manifest["party"]), str(read_job(folder).get("submission"))
    trees = valued_trees(manifest, shard, read_repaired(folder), party, str(folder)).valued
    key = bytes.fromhex(json.loads((folder / LEAF_KEY).read_text())["key"])
    table = leaf_table(TrainedJob(str(manifest["job"]), submission, manifest["job_digest"], party), manifest, trees)
    if commitment(key, table).hex() != manifest[COMMITMENT]:
        raise DataError(f"{folder}: its leaves are not those of its commitment; bring a back-up of the folder back")
    return key, table


def _leaves(leaves: Sequence[Leaf]) -> list[dict[str, Any]]:
    return [{"node": leaf.node, "weights": list(leaf.weights)} for leaf in leaves]
