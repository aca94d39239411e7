"""Messages between the parties of a PIVODL job, with the size limits that follow from the job."""

from __future__ import annotations

from collections.abc import Callable

from party.pivodl.candidate_bins import CODE_BYTES
from party.pivodl.secure_gains import of_comparisons
from party.pivodl.setting import Setting
from party.runtime.expected import Expected, Receives, public_key_size, record_set, record_sets
from treetap.privacy.masks import KEY_BYTES
from treetap.protocols.growth import MOST_COLUMNS
from treetap.protocols.key_options import KeyKind
from treetap.trees.pivodl_params import MOST_CLASSES
from treetap.trees.role_draws import NONCE_BYTES

#: Bytes of a number with its tag, and of a node's number with those of its message.
_NUMBER = 12
_NODE = 24


def of_any_job(setting: Setting, records: Callable[[], int]) -> Receives:
    """Messages of every PIVODL job. `records`: the common ones, or more."""
    return {"labelled_records": Expected(setting.others, lambda: record_set(records()))}


def of_spread_labels(setting: Setting, records: Callable[[], int]) -> Receives:
    """Messages of a job whose labels are spread over parties."""
    params, others = setting.params, setting.others
    cipher = KeyKind.of(setting.spec).ciphertext_bytes
    trees, levels = range(params.n_estimators), range(params.max_depth)

    def nodes() -> int:
        return min(1 << params.max_depth, max(records(), 1))

    def candidates() -> int:
        return MOST_COLUMNS * min(params.max_bin * 2, 2 * max(records(), 1))

    def bins() -> int:
        return MOST_COLUMNS * (CODE_BYTES * records() + _NODE)

    def per_tree(size: Callable[[], int]) -> Expected:
        return Expected(others, size, trees)

    def per_level(size: Callable[[], int]) -> Expected:
        return Expected(others, size, trees, levels)

    return {
        **of_any_job(setting, records),
        "party_keys": Expected(others, lambda: public_key_size(setting.spec.key_bits) + KEY_BYTES + 32),
        "party_nonce": Expected(others, lambda: NONCE_BYTES),
        "moment_share": Expected(others, lambda: 3 * cipher),
        "joint_moments": Expected(others, lambda: 3 * cipher),
        "label_moments": Expected(others, lambda: 256),
        "record_bins": Expected(others, bins),
        "candidate_records": per_level(lambda: nodes() * candidates() * _NODE + candidates() * records() * 5),
        "label_sums": per_tree(lambda: cipher),
        "joint_sums": per_tree(lambda: cipher),
        "node_sums": Expected(
            others, lambda: nodes() * (_NODE + 2 * MOST_CLASSES * _NUMBER), trees, range(params.max_depth + 1)
        ),
        "candidate_shares": per_level(lambda: nodes() * (_NODE + candidates() * cipher)),
        "forwarded_sums": per_level(lambda: nodes() * (_NODE + candidates() * cipher)),
        "best_gains": per_level(lambda: nodes() * (_NODE + _NUMBER + 64)),
        **of_comparisons(setting, nodes),
        "winning_candidates": per_level(lambda: nodes() * _NODE + candidates() * 4),
        "divided_nodes": per_level(lambda: nodes() * 2 * _NODE),
        "node_records": per_level(lambda: record_sets(records(), 2 * nodes())),
        "leaf_weights": per_level(lambda: nodes() * 2 * (_NODE + MOST_CLASSES * _NUMBER)),
        "metric_share": per_tree(lambda: 64),
    }
