"""The results of PIVODL's attacks in the audit document; an unknown field is an error."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class GuessFigures(_Part):
    """A guess of the labels of `records`: see `attacks.pivodl.label_guess.Guess`."""

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


class InversionFigures(_Part):
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


class DifferentialFigures(_Part):
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


class DisclosedFigures(_Part):
    """See `attacks.pivodl.disclosed.Disclosed`."""

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
