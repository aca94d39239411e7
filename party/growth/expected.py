"""Messages between the parties of a training while trees grow, with the size limits that follow from the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from party.runtime.expected import Expected, Receives, public_key_size, record_sets
from treetap.protocols.key_options import KeyKind
from treetap.trees.params import TreeParams
from treetap.wire.v2 import setup_pb2

#: Most classes of a label, of which each may have a tree per round.
MOST_CLASSES = 1 << 16
#: Most columns of a party, each of which has up to `max_bin` candidates; more where several sums fit a ciphertext.
MOST_COLUMNS = 1 << 12
#: Bytes of a branch, and of a leaf beside its branches.
_BRANCH = 16
#: Bytes of a node's number.
_NODE = 5
#: Bytes of a place of a candidate, and of a split beside its places.
_PLACE, _SPLIT = 5, 32
#: Bytes of a partition beside a bit for each category.
_PARTITION = 32


def of_label_holder(
    spec: setup_pb2.JobSpec,
    params: TreeParams,
    trees: int,
    records: Callable[[], int],
    categories: Callable[[], Sequence[int]],
    candidates: Callable[[], int],
) -> Receives:
    """Messages that a feature party receives, without the encrypted values.

    `records`: the common ones, or more. `categories`: the numbers of those that are partitioned, by column.
    `candidates`: the most places that a node of the party has.
    """
    sender, depth = [spec.aggregator], params.max_depth
    rounds = range(trees)
    return {
        "public_key": Expected(sender, lambda: public_key_size(spec.key_bits)),
        "sampled_records": Expected(sender, lambda: record_sets(records(), records()), rounds),
        "instance_spaces": Expected(
            sender, lambda: _spaces(records(), depth), rounds, range(params.expansion.most_stages)
        ),
        "won_splits": Expected(
            sender,
            lambda: _nodes(records(), depth - 1) * (_SPLIT + _PLACE * candidates()),
            rounds,
            range(params.expansion.most_stages),
        ),
        "chosen_partitions": Expected(
            sender,
            lambda: _nodes(records(), depth - 1) * _partitions(categories()),
            rounds,
            range(params.expansion.most_stages),
        ),
        "leaf_paths": Expected(sender, lambda: _nodes(records(), depth) * _BRANCH * (depth + 1), rounds),
    }


def of_feature_parties(
    spec: setup_pb2.JobSpec,
    params: TreeParams,
    trees: int,
    records: Callable[[], int],
    offered: Callable[[str, int], int],
    sums_of_each: int = 1,
) -> Receives:
    """Messages that the label holder receives.

    `records`: the common ones, or more. `offered`: the candidates that a party had at the root of a tree, as many
    as it has in each further node. `sums_of_each`: the sums that come for a candidate.
    """
    senders, depth, cipher = list(spec.feature_parties), params.max_depth, KeyKind.of(spec).ciphertext_bytes
    rounds, rules = range(trees), params.expansion
    stages = range(rules.most_stages)

    def sums(nodes: int, candidates: int) -> int:
        return nodes * (_NODE + sums_of_each * candidates * cipher)

    def most() -> int:
        return MOST_COLUMNS * min(params.max_bin + 1, 2 * records())

    def of_stage(sender: str, tree: int, stage: int) -> int:
        nodes = min(rules.most_compared(stage), max(records(), 1))
        return sums(nodes, offered(sender, tree) if stage else most())

    return {
        "candidate_sums": Expected(
            senders, lambda: sums(_nodes(records(), depth - 1), most()), rounds, stages, of_stage
        ),
        "children": Expected(senders, lambda: _spaces(records(), depth), rounds, stages),
    }


def of_ciphertexts(spec: setup_pb2.JobSpec, records: Callable[[], int], rounds: range = range(1)) -> Expected:
    """The label holder's encrypted values, a ciphertext for each record."""
    cipher = KeyKind.of(spec).ciphertext_bytes
    return Expected([spec.aggregator], lambda: records() * cipher, rounds)


def _nodes(records: int, depth: int) -> int:
    """Most nodes of a depth: each has a record."""
    return min(1 << depth, max(records, 1))


def _partitions(categories: Sequence[int]) -> int:
    """Most bytes of a node's partitions: one for each column, should all tie."""
    return len(categories) * (_PARTITION + max(categories, default=0) // 8)


def _spaces(records: int, depth: int) -> int:
    return record_sets(records, _nodes(records, depth))
