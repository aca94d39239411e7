"""Messages that predictions of several protocols share."""

from __future__ import annotations

from dataclasses import dataclass

from treetap.protocols.messages import (
    JOB,
    JobSizes,
    MessageRow,
    Series,
    all_report,
    each_round,
    feature_parties_report,
    label_holder_reports,
    once,
    to_feature_parties,
    to_label_holder,
)

#: Most characters of a feature's name.
LONGEST_NAME = 1000


@dataclass(kw_only=True)
class ScoringSizes(JobSizes):
    """Sizes of a prediction.

    Attributes:
        rounds: blocks: as many as records are asked for.
        named: splits of other parties, which have names.
    """

    rounds: int = 1 << 62
    named: int = 0


def records_of_block(sizes: ScoringSizes, series: Series) -> int:
    """The set of a block's records."""
    del series
    return sizes.record_set()


def names_of_splits(sizes: ScoringSizes, series: Series) -> int:
    """The name of each split that other parties have."""
    del series
    return (4 * LONGEST_NAME + 32) * sizes.named


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
    MessageRow("split_names", to_label_holder, once, names_of_splits, step="name_features", perhaps=CLASSES_OF_NAMES),
)
#: Blocks of records that go through the chain encrypted.
BLOCKS = (
    MessageRow("block_records", to_feature_parties, each_round, records_of_block),
    MessageRow("scored_block", label_holder_reports),
)
