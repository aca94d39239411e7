"""Messages that predictions of several protocols share."""

from __future__ import annotations

from dataclasses import dataclass

from treetap.protocols.messages import (
    JOB,
    JobSizes,
    MessageRow,
    all_report,
    at_most,
    each_round,
    feature_parties_report,
    label_holder_reports,
    once,
    to_feature_parties,
    to_label_holder,
)

#: Most characters of a feature's name.
LONGEST_NAME = 1000
#: Most feature parties of a prediction with attributions.
MOST_ATTRIBUTING = 4
#: Most bytes of ciphertexts of one block, all of which may lie at a party before its step begins.
BLOCK_BYTES = 64 * 1024 * 1024
#: Bytes of a branch, of an entry of a layout, and of a tree with up to a thousand outputs.
_BRANCH, _ENTRY, _TREE = 16, 24, 8192


@dataclass(kw_only=True)
class ScoringSizes(JobSizes):
    """Sizes of a prediction.

    Attributes:
        rounds: blocks: as many as records are asked for.
        block: most records of one.
        named: splits of other parties, which have names.
        trees, splits, leaves, depth: of the own shard, at a feature party of a model of trees.
    """

    rounds: int = 1 << 62
    block: int
    named: int = 0
    trees: int = 0
    splits: int = 0
    leaves: int = 0
    depth: int = 0

    def layout(self, entries: int) -> int:
        """Bytes of a layout with at most `entries` for each leaf."""
        return self.trees * _TREE + self.leaves * entries * _ENTRY

    def columns(self) -> int:
        """Bytes of a layout of columns, each with its branches."""
        return self.trees * _TREE + self.leaves * (self.depth + 2) * _BRANCH

    def queries(self) -> int:
        """Bytes of the queries of a level: no record twice in a tree."""
        sets = min(self.trees * self.record_sets(1), self.splits * self.record_set())
        return sets + self.splits * 2 * _BRANCH


records_of_block = at_most(lambda sizes: sizes.record_set(), "The set of a block's records.")


#: Of a prediction by trees, whose number is the label holder's to report. Counts of cells go only where the policy lets
#: them.
OPENED_TREES = (
    MessageRow("opened_model", label_holder_reports, step="open_model", perhaps=frozenset({"METRIC"})),
    MessageRow("opened_model", feature_parties_report, step="open_model", perhaps=frozenset({"TOPOLOGY", "METRIC"})),
)
#: Of any other prediction.
OPENED = (MessageRow("opened_model", all_report, step="open_model", perhaps=frozenset({"TOPOLOGY", "METRIC"})),)
#: Of every prediction. Metrics of an evaluated one go only where the policy lets them.
PREDICTION = (
    *JOB,
    MessageRow("written_predictions", label_holder_reports, step="write_predictions", perhaps=frozenset({"METRIC"})),
)
#: Of a prediction that serves, in the place of the file of predictions.
SERVING = (*JOB, MessageRow("awaited_requests", label_holder_reports, step="await_requests"))
#: Classes of a message with names. A policy that keeps one of them from the label holder withholds all names.
CLASSES_OF_NAMES = frozenset({"FEATURE_NAME", "TOPOLOGY"})
#: Of a prediction with explanations; a party whose policy forbids it reports that it withholds names.
EXPLANATIONS = (
    MessageRow(
        "split_names",
        to_label_holder,
        once,
        at_most(lambda sizes: (4 * LONGEST_NAME + 32) * sizes.named, "The name of each split that other parties have."),
        step="name_features",
        perhaps=CLASSES_OF_NAMES,
    ),
)


def blocks(naming: str, scoring: str) -> tuple[MessageRow, ...]:
    """Blocks of records, which the label holder names to the others in the step `naming` and scores in `scoring`."""
    return (
        MessageRow("block_records", to_feature_parties, each_round, records_of_block, step=naming),
        MessageRow("scored_block", label_holder_reports, step=scoring),
    )


def spent(naming: str) -> tuple[MessageRow, ...]:
    """Of a served model: the records of a block of which a feature party's policy permits no further query."""
    return (MessageRow("spent_records", to_label_holder, each_round, records_of_block, step=naming),)
