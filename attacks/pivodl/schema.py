"""The results of PIVODL's attacks in the audit document."""

from __future__ import annotations

from treetap.attacks.schema import Count, Findings
from treetap.attacks.verdict import Compared


class GuessFigures(Findings):
    """Quality of a guess of the labels of some `records`; null without labels or records.

    `accuracy`: share of right guesses; `inverted`: that of the opposite guess, of two classes; `majority`: that of
    always naming the class that is most frequent among these records; `auc`: probability that a record of the second
    class has a larger sum than one of the first, of two classes.
    """

    records: Count
    accuracy: float | None
    inverted: float | None
    majority: float | None
    auc: float | None


class LabelGuess(GuessFigures):
    """The guess by all received leaf weights (Definition 9), over the records that other parties label: `others`.

    `as_source`: by leaves below the party's own splits alone. Of a job with `epsilon` also: `exact`, by weights that
    came without noise alone; `without_noise`, by the exact weights of all leaves, where another audited party has them;
    `after_inversion`, with the exact weights that gains or received sums give away. `own_labels_and_spaces`, and
    `..._and_columns`: models of the party's own labels by the nodes that it knows, and by its own columns.
    `accuracy_by_tree`, `auc_by_tree`: by the weights of the first tree, the first two, and so on.
    """

    others: Count
    epsilon: float | None
    as_source: GuessFigures
    exact: GuessFigures | None
    without_noise: GuessFigures | None
    after_inversion: GuessFigures | None
    own_labels_and_spaces: GuessFigures | None
    own_labels_and_columns: GuessFigures | None
    accuracy_by_tree: list[float | None]
    auc_by_tree: list[float | None]


class InversionFigures(Findings):
    """Splits of which the party has the gain (`announced`), could set up the equation (`tried`), found one solution
    (`solved`), and found the right one (`exact`; null without labels)."""

    splits: Count
    announced: Count
    tried: Count
    solved: Count
    exact: Count | None


class InvertedTreeFigures(InversionFigures):
    """Those of one tree."""

    tree: Count


class GainInversionFigures(InversionFigures):
    """Gain inversion over all trees. `possible`: False where no gain is announced, or the job is not logistic.

    `noised_weights`: leaf weights that the party received with noise; `noise_removed`: of these, those whose exact
    value follows from gains.
    """

    possible: bool
    noised_weights: Count
    noise_removed: Count
    by_tree: list[InvertedTreeFigures]


class DifferentialFigures(Findings):
    """The differential attack. `opened_by_source`: candidates that their own source opened, none in an honest run.

    `known_sums`: known sets of records with known sums, by messages, the smallest of `smallest_set` records; `labels`
    that follow from them, of which `labels_right` are right (null without labels). The same with the sums that gain
    inversion finds.
    """

    opened_by_source: Count
    known_sums: Count
    smallest_set: Count | None
    labels: Count
    labels_right: Count | None
    labels_by_inversion: Count
    labels_right_by_inversion: Count | None


class SourceFigures(Findings):
    """One party's columns as another one reads them; `cells`: records that the reader does not label × columns.

    `received`: cells of the records that it labels, whose bins it was sent. Claims on `cells`: `by_left_sets`, those
    that follow from known left sets of splits, and `placed`, all; of them wrong ones, null without the party's table.
    `opened`: sums of its candidates that the reader opened and recorded, of which `linked` were told apart.
    `contradictions`: cells of which claims left no bin. `best_column`: by number, the one whose expected bins are most
    like the true ones, by `rank_correlation`. `compared`: the share of cells right if those that are not claimed are
    named by the column's most frequent bin that left sets do not exclude, beside naming all of them by the most
    frequent one; `explained`: the variance of bins that expected ones explain; null without the party's table.
    """

    records: Count
    columns: Count
    cells: Count
    received: Count
    by_left_sets: Count
    by_left_sets_wrong: Count | None
    placed: Count
    wrong: Count | None
    opened: Count
    linked: Count
    contradictions: Count
    best_column: Count | None
    rank_correlation: float | None
    compared: Compared | None = None
    explained: Compared | None = None


class SourceColumns(Findings):
    """The columns of the other parties, by party; `reasons`: of one that is not scored."""

    sources: dict[str, SourceFigures]
    reasons: dict[str, str]


class DisclosedFigures(Findings):
    """Counts over a job's complete trees, at one party.

    `bins`: bins of its labelled records that it received, records × columns of all sources, `bins_from` by source;
    `listed`: ids in the lists of records that it received in the paper's wire form, candidate by candidate.
    `continuing_nodes`, `continuing_ids`: children that may be split, of other parties' splits, and their records.
    `leaves`: of all trees, `leaves_as_source` below its own splits, `exact_weight_known` of these those whose exact
    weight follows from sums that it received. `exact_beside_open`: leaves below other parties' splits with an exact
    weight and known records, since their sibling may be split. `barred`: open nodes whose sums it must not learn;
    `without_split_party`: open nodes at which it offers no candidates, since no party may open them.
    """

    bins: Count
    bins_from: dict[str, Count]
    listed: Count
    continuing_nodes: Count
    continuing_ids: Count
    leaves: Count
    leaves_as_source: Count
    exact_weight_known: Count
    exact_beside_open: Count
    barred: Count
    without_split_party: Count
