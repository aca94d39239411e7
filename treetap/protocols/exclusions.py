"""The features that a job cannot have together: one table, by which every process checks jobs and predictions.

A row names two things: two features, or a feature and a protocol. A feature with a row for `OTHERS` is had by protocols
alone that name it among their `capabilities`; the row says why others lack it, unless one has a row of its own.
docs/exclusions.md prints it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class Feature(StrEnum):
    """Part of a job, of a party's configuration for it, or of a prediction: as a message names it."""

    # of a training job
    EVAL_TABLE = "eval_table"
    VALIDATION_SHARE = "validation_share"
    EVALUATE_ROUNDS = "evaluate_rounds"
    EARLY_STOPPING = "early_stopping_rounds"
    BASE_MODEL = "base_model"
    MAX_LEAVES = "max_leaves"
    MULTI_OUTPUT = "multi_strategy = 'multi_output_tree'"
    BOOTSTRAP = "bootstrap = true"
    BINS_PER_NODE = "binning = 'per-node'"
    BATCH_NORM = "norm = 'batch'"
    REGRESSION = "a regression"
    NETWORK = "a network"
    LATTICE = "scheme = 'lattice'"
    KEYED = "a scheme with keys"
    LOSSGUIDE = "grow_policy = 'lossguide'"
    WITHHELD = "instance_spaces = 'withheld'"
    PAD_TREES = "pad_trees = true"
    ADDITIVE_OPENED = "model = 'additive' with sums that are opened"
    SHARED = "privacy = 'private'"
    SENT = "instance_spaces = 'sent'"
    OPENED = "sums that are opened"
    REG_ALPHA = "reg_alpha"
    MAX_DELTA_STEP = "max_delta_step"
    BASE_SCORE = "base_score"
    SOFTPROB = "objective = 'multi:softprob'"
    QUANTILES = "objective = 'reg:quantileerror'"
    NOT_LOGARITHMIC = "an objective whose score is no logarithm"
    LEFT = "join = 'left'"
    SCREEN = "a screening"
    # of a party's table
    MONOTONE = "monotone_constraints"
    CUTS = "cuts"
    PARTITIONS = "sets of categories at a feature party"
    WEIGHT = "weight"
    BASE_MARGIN = "base_margin"
    EXPOSURE = "exposure"
    NO_COLUMNS = "a table without columns of features"
    # of a party's policy
    MAX_LEAKAGE = "max_leakage"
    WITHDRAW = "on_max_leakage = 'withdraw'"
    MIN_INSTANCE_SPACE = "min_instance_space"
    # of [defences]
    ID_LMID = "id_lmid"
    ID_LMID_PAPER = "id_lmid with counts = 'paper'"
    LABEL_DP = "label_dp"
    LABEL_DP_STAGES = "label_dp with stages above 1"
    GRAFTING = "grafting"
    REFIT = "refit"
    REDUCED_LEAKAGE = "reduced_leakage"
    DIMIP = "dimip"
    GRADIENT = "gradient"
    SENSITIVITY = "sensitivity"
    DP_SGD = "dp_sgd"
    MIN_CELL_RECORDS = "min_cell_records"
    MIN_SIDE_RECORDS = "min_side_records"
    COLUMN_PRIVACY = "column_privacy"
    # of an experiment
    EXPERIMENT = "an experiment"
    # of a prediction, and of its model
    HIDDEN_VALUES = "a model with a defence that gives leaves values by the label holder's own columns"
    WITHHELD_MODEL = "a model that was trained with instance_spaces = 'withheld'"
    LEFT_MODEL = "a model that was trained with join = 'left'"
    SERVE = "serve"
    SERVE_DEGRADED = "serve with away = 'degrade'"
    LOOK_UP = "look_up"
    SORTED_IDS = "a model of a job with alignment = 'sorted-ids'"
    TABLE = "a prediction of a table"
    DEGRADE = "away = 'degrade'"
    EXPLAIN = "explain"
    ATTRIBUTIONS = "attributions"
    REASONS = "reasons"
    EVALUATE = "evaluate"
    RECORDS = "records"
    FORMAT = "format"
    FORM = "form"
    PREDICTION_WEIGHTS = "prediction_weights"
    # of a key
    SCHEME = "scheme"
    KEY_BITS = "key_bits"
    OBFUSCATION = "obfuscation"


#: In a row: every protocol without the feature that has no row of its own.
OTHERS = "other protocols"
#: The defences of labels that trees grown by a label holder and feature parties can have, and all that every protocol
#: that grows them so can have.
DEFENCES_OF_TREES = frozenset(
    {Feature.ID_LMID, Feature.LABEL_DP, Feature.GRAFTING, Feature.REFIT, Feature.REDUCED_LEAKAGE}
)
OF_GROWN_TREES = DEFENCES_OF_TREES | {
    *(Feature.EVAL_TABLE, Feature.MAX_LEAKAGE, Feature.MIN_CELL_RECORDS, Feature.MIN_SIDE_RECORDS, Feature.CUTS),
}
_KEY = (Feature.KEY_BITS, Feature.OBFUSCATION)
_OF_CLASSES = (Feature.ID_LMID, Feature.LABEL_DP, Feature.GRAFTING, Feature.REFIT, Feature.DIMIP)


class Exclusion(NamedTuple):
    """A row: `feature` does not go with `other`, a feature, the name of a protocol or `OTHERS`."""

    feature: Feature
    other: Feature | str
    reason: str
    remedy: str

    def __str__(self) -> str:
        other = self.other if isinstance(self.other, Feature) else f"protocol {self.other!r}"
        return f"{self.feature} and {other} do not go together: {self.reason}; {self.remedy}"


def _each(features: Iterable[Feature], other: Feature | str, reason: str, remedy: str) -> list[Exclusion]:
    return [Exclusion(feature, other, reason, remedy) for feature in features]


F = Feature
#: Of trainings. A row's first feature is the one that the remedy is about.
TRAININGS: tuple[Exclusion, ...] = (
    Exclusion(
        F.EVAL_TABLE,
        "pivodl",
        "labels lie with several parties, whose figures are added up under masks for the training alone",
        "leave eval_table out",
    ),
    Exclusion(
        F.EVAL_TABLE,
        "splitnn",
        "an embedding of each of its records would go to the label holder after every epoch",
        "set records of the training aside by validation_share",
    ),
    Exclusion(F.EVAL_TABLE, OTHERS, "it computes no scores of records that it does not train on", "leave it out"),
    Exclusion(
        F.EVAL_TABLE,
        F.BASE_MODEL,
        "no party has scores of its records under the base model",
        "leave it out, or have validation_share of the records set aside",
    ),
    Exclusion(
        F.EVAL_TABLE,
        F.LABEL_DP,
        "metrics by the labels of an eval table are outside the guarantee, which is for the labels of the training",
        "leave one of them out",
    ),
    Exclusion(F.VALIDATION_SHARE, F.EVAL_TABLE, "early stopping watches eval_table", "leave one of them out"),
    Exclusion(
        F.EVALUATE_ROUNDS,
        F.EARLY_STOPPING,
        "early stopping would choose the model by the held-out rows",
        "leave one of them out",
    ),
    Exclusion(F.BASE_MODEL, "pivodl", "the parties keep no scores of the records to begin with", "leave it out"),
    Exclusion(
        F.BASE_MODEL,
        "splitnn",
        "its steps depend on the optimisers' states, which no party publishes",
        "leave it out",
    ),
    Exclusion(F.BASE_MODEL, OTHERS, "every training of it begins anew", "train one with more trees, and leave it out"),
    Exclusion(
        F.BASE_MODEL,
        F.EXPERIMENT,
        "the parties of an experiment start without models",
        "leave it out, and train by 'treetap train' to continue from one",
    ),
    *_each(
        (F.GRAFTING, F.REFIT),
        F.BASE_MODEL,
        "trees are repaired from the first, and those of the base model are finished",
        "leave one of them out",
    ),
    *_each((F.SCHEME, *_KEY), F.NETWORK, "a network encrypts nothing", "leave it out"),
    Exclusion(F.LATTICE, OTHERS, "it encrypts no value anew for every node", "use scheme = 'paillier'"),
    Exclusion(
        F.WITHHELD,
        OTHERS,
        "it encrypts no value anew for every node, with zeros in the place of the records outside",
        "train by boosting, or leave it out",
    ),
    Exclusion(
        F.WITHHELD,
        F.KEYED,
        "a feature party multiplies the ciphertexts of a node's records, which it has to know for that",
        "use scheme = 'lattice'",
    ),
    Exclusion(
        F.WITHHELD,
        F.BINS_PER_NODE,
        "a node's bins are quantiles of its records, which a feature party would not know",
        "set binning = 'global', or leave it out",
    ),
    Exclusion(
        F.WITHHELD,
        F.ADDITIVE_OPENED,
        "every node that is split is a root, which holds all records, so that withheld sets hide nothing",
        "leave it out, or set privacy = 'private', which hides sums",
    ),
    Exclusion(
        F.MIN_CELL_RECORDS,
        F.WITHHELD,
        "a feature party does not know how many records of a node lie in a bin",
        "take min_side_records in its place where privacy = 'private', or leave one of them out",
    ),
    Exclusion(
        F.MIN_SIDE_RECORDS,
        F.OPENED,
        "records of a side are counted where candidates are compared on shares",
        "set privacy = 'private', or leave it out (min_cell_records bounds sums that are opened)",
    ),
    Exclusion(
        F.MIN_SIDE_RECORDS,
        F.BOOTSTRAP,
        "a tree may draw a record several times, and sides of few records would count as large ones",
        "set bootstrap = false, or leave it out",
    ),
    Exclusion(
        F.MIN_INSTANCE_SPACE,
        F.WITHHELD,
        "a feature party does not know how few records a sum or a left set is about, and the label holder may have it "
        "sum a single one",
        "leave one of them out",
    ),
    Exclusion(
        F.PAD_TREES,
        F.EARLY_STOPPING,
        "the number of trees would depend on labels",
        "leave one of them out",
    ),
    Exclusion(
        F.PAD_TREES,
        F.LOSSGUIDE,
        "which node is built next depends on labels, whatever is built beside it",
        "set grow_policy = 'depthwise', or leave it out",
    ),
    Exclusion(
        F.SHARED,
        OTHERS,
        "it opens sums of other forms, or none",
        "train trees that one label holder grows, or leave it out",
    ),
    Exclusion(
        F.SHARED,
        F.SENT,
        "a feature party would learn sets of records, and from them what no sum tells it",
        "set instance_spaces = 'withheld'",
    ),
    *_each(
        (F.REG_ALPHA, F.MAX_DELTA_STEP),
        F.SHARED,
        "it makes a score more than one fraction, and shares are compared as fractions",
        "set it to 0, or set privacy = 'withheld'",
    ),
    Exclusion(
        F.MULTI_OUTPUT,
        F.SHARED,
        "a score has a fraction for every output, and shares are compared as one",
        "set multi_strategy = 'one_output_per_tree'",
    ),
    Exclusion(
        F.MONOTONE,
        F.SHARED,
        "the direction of a split is compared in no shared form",
        "leave the constraints out, or set privacy = 'withheld'",
    ),
    Exclusion(
        F.PARTITIONS,
        F.SHARED,
        "the label holder would order categories by their sums, which nobody opens",
        'use a max_cat_to_onehot above the number of categories, or encode = "ordinal" or "one-hot" for the column',
    ),
    *_each(
        (F.LOSSGUIDE, F.MAX_LEAVES),
        F.SHARED,
        "gains of waiting nodes are compared, and nobody opens them",
        "grow depthwise to max_depth alone, or set privacy = 'withheld'",
    ),
    *_each(
        (F.ID_LMID, F.WITHDRAW),
        F.SHARED,
        "it counts classes in the sets of all candidates, and nobody opens these",
        "leave it out, or set privacy = 'withheld'",
    ),
    Exclusion(
        F.LEFT,
        "splitnn",
        "an embedding has no value for a record that its party lacks",
        "train by boosting, or leave it out; a network's party-wise dropout is for a party that is away, not a record",
    ),
    Exclusion(
        F.LEFT,
        "pivodl",
        "labels lie with several parties, so that no party's records are the job's",
        "leave it out",
    ),
    Exclusion(F.LEFT, OTHERS, "it has no side for records that a party lacks", "train by boosting, or leave it out"),
    Exclusion(
        F.LEFT,
        F.BINS_PER_NODE,
        "a feature party does not know in which nodes there are records that it lacks",
        "set binning = 'global', or leave join out",
    ),
    Exclusion(F.SCREEN, OTHERS, "it has no sums at the label holder's own score", "screen by protocol = 'boosting'"),
    Exclusion(
        F.SCREEN,
        F.SHARED,
        "information values, weights of evidence and redundancy are made of sums, and nobody opens these",
        "set privacy = 'withheld'",
    ),
    Exclusion(F.WEIGHT, F.SCREEN, "it counts the records of a bin", "screen a table without weight"),
    *_each(
        (F.ID_LMID, F.WITHDRAW, F.REDUCED_LEAKAGE, F.LABEL_DP),
        F.SCREEN,
        "it sums the label holder's own score over all records once, and shows no set of them",
        "leave it out",
    ),
    Exclusion(
        F.COLUMN_PRIVACY,
        F.SCREEN,
        "its figures are of exact sums, and noise would count as information",
        "leave it out, or screen with min_cell_records",
    ),
    Exclusion(F.MONOTONE, OTHERS, "they bound the weights of boosted trees, and it has none", "train by boosting"),
    Exclusion(
        F.MONOTONE,
        F.MULTI_OUTPUT,
        "XGBoost has no constraints of leaves with several weights",
        "train with multi_strategy = 'one_output_per_tree'",
    ),
    Exclusion(
        F.QUANTILES,
        F.MONOTONE,
        "leaves are quantiles of residuals, which would not keep the order of the bounds",
        "leave the constraints out",
    ),
    *_each(
        (F.GRAFTING, F.REFIT),
        F.MONOTONE,
        "leaves get weights of clean labels, which would not keep the order that noisy ones had",
        "leave one of them out",
    ),
    Exclusion(F.CUTS, OTHERS, "it bins no columns", "train trees, or leave cuts out"),
    Exclusion(
        F.CUTS,
        F.BINS_PER_NODE,
        "a node's bins are quantiles of its records",
        "set binning = 'global', or leave cuts out",
    ),
    Exclusion(
        F.WEIGHT,
        "pivodl",
        "its thresholds and the noise of its leaves count each record once",
        "train by boosting, or on a table without weight",
    ),
    Exclusion(F.WEIGHT, OTHERS, "it has no sample weights", "train by boosting, or on a table without weight"),
    Exclusion(
        F.LABEL_DP,
        F.WEIGHT,
        "sample weights would go into the training as they are, and they often follow from labels",
        "leave one of them out",
    ),
    *_each(
        (F.BASE_MARGIN, F.EXPOSURE),
        OTHERS,
        "its scores begin alike for all records",
        "train by boosting, or leave it out",
    ),
    *_each(
        (F.BASE_MARGIN, F.EXPOSURE),
        F.BASE_MODEL,
        "the scores after the base model's trees begin alike for all records",
        "leave one of them out",
    ),
    Exclusion(
        F.BASE_MARGIN,
        F.SOFTPROB,
        "a record has a score for each class, and one column does not say them all",
        "leave it out",
    ),
    Exclusion(
        F.BASE_MARGIN, F.BASE_SCORE, "it is in the place of the base score of every record", "leave base_score out"
    ),
    Exclusion(
        F.EXPOSURE,
        F.NOT_LOGARITHMIC,
        "the logarithm of an exposure is added to the logarithm of a count or an amount",
        "train with objective = 'count:poisson', 'reg:gamma' or 'reg:tweedie', or leave it out",
    ),
    Exclusion(
        F.LABEL_DP,
        F.BASE_MARGIN,
        "it would go into the training as it is, and it may follow from labels",
        "leave one of them out",
    ),
    *_each(
        (*sorted(DEFENCES_OF_TREES), F.DIMIP, F.GRADIENT),
        OTHERS,
        "it has no such defence of labels",
        "train by another protocol, or leave it out",
    ),
    *_each(
        (F.SENSITIVITY, F.DP_SGD),
        OTHERS,
        "it has no such defence of columns",
        "train a split network, or leave it out",
    ),
    *_each(
        (F.MIN_CELL_RECORDS, F.COLUMN_PRIVACY),
        F.LEFT,
        "records that its party lacks would be in a cell with others, or in sums with noise for fewer",
        "leave one of them out",
    ),
    *_each(
        (F.ID_LMID, F.MAX_LEAKAGE, F.WITHDRAW),
        F.LEFT,
        "what a set tells is counted over all records, and a feature party knows some of them",
        "leave one of them out",
    ),
    Exclusion(
        F.MIN_CELL_RECORDS,
        "pivodl",
        "the owners of labels have the bins of their records, and no sum hides these",
        "train by boosting, or leave it out",
    ),
    *_each(
        (F.MIN_CELL_RECORDS, F.MIN_SIDE_RECORDS),
        OTHERS,
        "it sums no bins of columns",
        "train trees, or leave it out",
    ),
    Exclusion(
        F.MIN_CELL_RECORDS,
        F.BINS_PER_NODE,
        "the bins of a node are none of its parent, and differences of both would show few records",
        "set binning = 'global', or leave it out",
    ),
    Exclusion(
        F.MIN_CELL_RECORDS,
        F.ID_LMID,
        "sums are over records that a tree does not draw too, of which a bin may have few",
        "leave one of them out",
    ),
    Exclusion(
        F.MIN_CELL_RECORDS,
        F.WITHDRAW,
        "sums are over records that a tree does not draw too, of which a bin may have few",
        "leave min_cell_records out, or set on_max_leakage = 'stop'",
    ),
    Exclusion(
        F.COLUMN_PRIVACY,
        OTHERS,
        "its messages about columns have no such noise",
        "train trees that one label holder grows, or leave it out",
    ),
    Exclusion(
        F.COLUMN_PRIVACY,
        F.BINS_PER_NODE,
        "the guarantee is for fixed bins",
        "set binning = 'global', or leave it out",
    ),
    Exclusion(
        F.COLUMN_PRIVACY,
        F.WITHHELD,
        "a feature party cannot see that nodes of a level share no record",
        "leave one of them out",
    ),
    Exclusion(
        F.COLUMN_PRIVACY,
        F.MIN_CELL_RECORDS,
        "which bins are merged follows from exact cells",
        "leave min_cell_records out",
    ),
    Exclusion(
        F.COLUMN_PRIVACY,
        F.LOSSGUIDE,
        "nodes are not summed level by level, and the sums of one may come again",
        "set grow_policy = 'depthwise', or leave it out",
    ),
    Exclusion(
        F.COLUMN_PRIVACY,
        F.BASE_MODEL,
        "that model's trees may be of other noise, and their tables are compared exactly",
        "leave one of them out",
    ),
    Exclusion(
        F.COLUMN_PRIVACY,
        F.MONOTONE,
        "bounds of weights would follow from noised sums",
        "leave one of them out",
    ),
    Exclusion(
        F.COLUMN_PRIVACY,
        F.ID_LMID,
        "sums of classes have no bound on what a record adds to all of them",
        "leave one of them out",
    ),
    Exclusion(
        F.COLUMN_PRIVACY,
        F.WITHDRAW,
        "sums of classes have no bound on what a record adds to all of them",
        "leave column_privacy out, or set on_max_leakage = 'stop'",
    ),
    *_each(
        _OF_CLASSES, F.REGRESSION, "it protects classes, and labels are numbers", "train on classes, or leave it out"
    ),
    Exclusion(
        F.MAX_LEAKAGE,
        OTHERS,
        "its sets of records have no bound on what they tell of labels",
        "train on classes by another protocol, or leave max_leakage out",
    ),
    Exclusion(
        F.MAX_LEAKAGE,
        F.REGRESSION,
        "its sets of records have no bound on what they tell of labels",
        "train on classes, or leave max_leakage out",
    ),
    Exclusion(
        F.MAX_LEAVES,
        F.ID_LMID,
        "leaves that the label holder grows alone count too, and what is left for other nodes would show how many "
        "those are",
        "leave one of them out",
    ),
    Exclusion(
        F.MAX_LEAVES,
        F.WITHDRAW,
        "leaves that the label holder grows alone count too, and what is left for other nodes would show how many "
        "those are",
        "leave one of them out",
    ),
    Exclusion(
        F.GRAFTING,
        F.ID_LMID,
        "the one repairs subtrees that all parties know, the other withdraws them",
        "leave one of them out",
    ),
    Exclusion(
        F.GRAFTING,
        F.WITHDRAW,
        "the one repairs subtrees that all parties know, the other, which is ID-LMID, withdraws them",
        "leave grafting out, or set on_max_leakage = 'stop'",
    ),
    Exclusion(
        F.ID_LMID_PAPER,
        F.WITHDRAW,
        "the policy counts every record of a set that is shown, the defence those that a tree draws",
        "leave counts out",
    ),
    Exclusion(
        F.ID_LMID_PAPER,
        F.BOOTSTRAP,
        "the draws of a tree are counted, and a class may have more of these than records",
        "leave one of them out",
    ),
    Exclusion(
        F.LABEL_DP_STAGES,
        F.NO_COLUMNS,
        "priors come from columns of the label holder's own",
        "set stages = 1",
    ),
    Exclusion(
        F.REDUCED_LEAKAGE,
        F.NO_COLUMNS,
        "its trees have columns of the label holder's own",
        "leave it out",
    ),
    *_each((F.SENSITIVITY, F.DP_SGD), F.NO_COLUMNS, "there is nothing to protect", "leave it out"),
    Exclusion(
        F.SENSITIVITY,
        F.DP_SGD,
        "the gradient of the Jacobian's norm is neither clipped nor noised, and the accountant's ε would not hold",
        "leave one of them out",
    ),
    Exclusion(
        F.DP_SGD,
        F.BATCH_NORM,
        "a record has no gradient of its own",
        "train with norm = 'group', or leave it out",
    ),
)
#: Of predictions.
PREDICTIONS: tuple[Exclusion, ...] = (
    Exclusion(F.OBFUSCATION, "eini-lattice", "it hides in a way of its own", "leave it out"),
    Exclusion(F.KEY_BITS, "eini-lattice", "a lattice key has the size that the model asks for", "leave it out"),
    *_each(_KEY, OTHERS, "it encrypts nothing by such a key", "leave it out"),
    Exclusion(F.FORM, "splitnn", "a network has no levels to go down", "leave it out"),
    Exclusion(F.FORM, OTHERS, "it is an option of interactive predictions only", "leave it out"),
    Exclusion(F.PREDICTION_WEIGHTS, OTHERS, "it is an option of masked predictions only", "leave it out"),
    Exclusion(
        F.DEGRADE,
        "masked",
        "masks cancel only in the sum over all parties, so there is no score without one of them",
        "use retry",
    ),
    Exclusion(
        F.DEGRADE,
        OTHERS,
        "it has no score without one of the parties",
        "use protocol eini or interactive, or retry",
    ),
    Exclusion(F.DEGRADE, F.ATTRIBUTIONS, "there are no attributions without a party", "use retry, or leave them out"),
    Exclusion(
        F.SERVE,
        "masked",
        "every party would learn when a client asks about which record, and each answer would be a further sum over "
        "the same leaf weights",
        "predict a table",
    ),
    Exclusion(F.SERVE, OTHERS, "it has no steps for requests of clients", "predict a table"),
    Exclusion(
        F.SERVE_DEGRADED,
        OTHERS,
        "trees send a record both ways at the splits of a party that is away, and clients would get guesses",
        "use retry",
    ),
    Exclusion(
        F.LOOK_UP,
        OTHERS,
        "it has no steps that look up a record at another party",
        "use protocol interactive, eini or eini-lattice, or leave it out",
    ),
    Exclusion(F.LOOK_UP, F.TABLE, "the records of a table are aligned, not looked up", "serve the model"),
    Exclusion(F.LOOK_UP, F.SORTED_IDS, "no party blinds its ids", "train with alignment = 'psi', or leave it out"),
    Exclusion(F.RECORDS, F.SERVE, "a served model predicts the records that clients request", "leave it out"),
    Exclusion(F.FORMAT, F.SERVE, "a served model writes no file", "leave it out"),
    *_each(
        (F.EXPLAIN, F.ATTRIBUTIONS, F.EVALUATE),
        F.SERVE,
        "a served model answers with predictions alone",
        "leave it out",
    ),
    Exclusion(
        F.EVALUATE,
        F.RECORDS,
        "measures of chosen records, and of these without one, would tell the label of one",
        "leave records out, and the whole table is evaluated",
    ),
    *_each((F.EXPLAIN, F.ATTRIBUTIONS), "masked", "no party knows all leaf weights of these models", "leave it out"),
    *_each(
        (F.EXPLAIN, F.ATTRIBUTIONS),
        "splitnn",
        "a network has no decision paths, and no feature has a share of an embedding",
        "leave it out",
    ),
    Exclusion(F.EXPLAIN, OTHERS, "it has no decision paths", "leave it out"),
    Exclusion(
        F.ATTRIBUTIONS, OTHERS, "they are masked sums of an encrypted prediction", "use protocol eini, or leave it out"
    ),
    Exclusion(
        F.REASONS, OTHERS, "a reason is a column that its trees split", "serve a model of trees, or leave it out"
    ),
    Exclusion(F.ATTRIBUTIONS, F.HIDDEN_VALUES, "they divide values among splits that all parties know", "leave it out"),
    Exclusion(
        F.WITHHELD_MODEL,
        "interactive",
        "feature parties get the records that reach their nodes, as sets",
        "use protocol eini or eini-lattice",
    ),
    Exclusion(
        F.WITHHELD_MODEL,
        OTHERS,
        "it does not say that it keeps from feature parties which records reach their nodes",
        "use protocol eini or eini-lattice",
    ),
    Exclusion(
        F.LEFT_MODEL,
        OTHERS,
        "every party has a part in the score of every record, also of one that it lacks",
        "use protocol interactive, eini or eini-lattice",
    ),
    Exclusion(
        F.DEGRADE,
        F.HIDDEN_VALUES,
        "which entries are constant would tell where values depend on the record",
        "use retry or fail",
    ),
)


def broken(
    table: Collection[Exclusion], used: Collection[Feature], protocol: str = "", capabilities: Collection[Feature] = ()
) -> list[Exclusion]:
    """The rows that a job breaks, in the order of the table; those about `OTHERS` name its protocol.

    `used`: what it has; `capabilities`: the features of those with a row for `OTHERS` that its protocol has. Without a
    protocol only features are compared with each other.
    """
    pairs = [row for row in table if row.feature in used and row.other in used]
    if not protocol:
        return pairs
    # A row of its own says best why a protocol lacks a feature; the row of all others is the rest's.
    lacking = set(used) & gated(table) - set(capabilities)
    named = [row for row in table if row.feature in lacking and row.other == protocol]
    others = lacking - {row.feature for row in named}
    unnamed = [row._replace(other=protocol) for row in table if row.feature in others and row.other == OTHERS]
    return [*named, *unnamed, *pairs]


def named_in(*tables: Mapping[str, Any]) -> set[Feature]:
    """The features whose names are keys of tables of a file, with a value."""
    names = set(map(str, Feature))
    return {Feature(key) for table in tables for key, value in table.items() if key in names and value}


def gated(table: Collection[Exclusion]) -> set[Feature]:
    """The features that a protocol has only if it names them among its capabilities."""
    return {row.feature for row in table if row.other == OTHERS}


def between(feature: Feature, other: Feature) -> Exclusion:
    """The row of two features, for a place that has found both."""
    return next(row for row in (*TRAININGS, *PREDICTIONS) if (row.feature, row.other) == (feature, other))
