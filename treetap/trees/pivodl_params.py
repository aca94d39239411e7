"""The parameters of PIVODL (Zhu et al. 2023), and the ranges they must lie in.

`learning_rate`, `reg_lambda` and `gamma` are XGBoost's, as in boosting; `gamma` is twice the γ of the paper. Defaults
are the paper's. Where this project departs from the paper's steps, `as_published` takes these as printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from treetap.arrays import Ints
from treetap.trees.job_params import BINARY, OBJECTIVES, Range, not_a_choice, not_a_switch, out_of_range
from treetap.trees.params import COMMON, TreeParams

_LARGEST = 1e12
_RANGES = {
    **COMMON,
    "learning_rate": Range(0, 1, open_low=True),
    "reg_lambda": Range(0, _LARGEST),
    "gamma": Range(0, _LARGEST),
    "instance_threshold": Range(1, 1_000_000_000, integer=True),
    "min_samples": Range(1, 1_000_000_000, integer=True),
    "delta": Range(0, 1, open_low=True, open_high=True),
    "clip": Range(0, 1e6, open_low=True),
}
_OPTIONAL = {
    "epsilon": Range(0, 1e6, open_low=True),
    "label_scale": Range(0, _LARGEST, open_low=True),
    "base_score": Range(-_LARGEST, _LARGEST),
}
_CHOICES = {
    "objective": OBJECTIVES,
    "gain_comparison": ("announce", "secure"),
}
#: Most classes of a label.
MOST_CLASSES = 1024
#: Largest scaled gradient of a regression: its slot.
GRADIENT_SCALE = 4096.0


@dataclass(frozen=True)
class PivodlParams(TreeParams):
    """The parameters of a PIVODL job.

    Attributes:
        classes: names of the label's classes in order, as text; of binary:logistic the second is predicted.
        instance_threshold: fewest labelled records of a party on either side of a candidate (Algorithm 2, T).
        min_samples: a node of fewer records is a leaf (Algorithm 3, T_sample).
        epsilon: of the partial differential privacy of leaf weights (§III-C); None: no noise.
        clip: bound of the ℓ2 norm of a leaf weight before noise, in units of the scaled label.
        label_scale, base_score: of a regression: scaled label = (label − base_score) / label_scale; None: the smallest
            power of two ≥ the standard deviation, and the mean, by secure sums. `base_score` of a classifier is as
            in boosting; None is ½.
        gain_comparison: "announce" the best gains, or compare them by a "secure" protocol that reveals the order.
        as_published: the steps as printed, which protect less: thresholds on left sides at parties but the source,
            split parties drawn freely, sums of children to all parties, lists of records for each candidate of each
            node in the place of bins once per job, and noise for one release per tree, which is no bound.
    """

    protocol: ClassVar[str] = "pivodl"
    always_there: ClassVar[str] = "every party of PIVODL takes part in every tree"
    #: Thresholds of records take the place of XGBoost's least sum of h. The paper has no L1 penalty, and bounds a
    #: weight by `clip`, before its noise.
    min_child_weight: ClassVar[float] = 0.0
    reg_alpha: ClassVar[float] = 0.0
    largest_step: ClassVar[float] = 0.0
    n_estimators: int = 5
    """Trees."""
    max_depth: int = 3
    """Levels of splits."""
    objective: str = "binary:logistic"
    """The kind of labels and predictions: two classes, several, or numbers."""
    learning_rate: float = 0.3
    """Factor of leaf weights."""
    reg_lambda: float = 1.0
    """λ, the L2 penalty of leaf weights."""
    gamma: float = 0.0
    """Least loss change of a split."""
    classes: Sequence[str] = ()
    """Names of the classes in order, as text; required for "multi:softprob", ["0", "1"] for two classes."""
    instance_threshold: int = 10
    """Fewest labelled records of a party on either side of a candidate."""
    min_samples: int = 10
    """A node of fewer records is a leaf."""
    epsilon: float | None = None
    """ε of the partial differential privacy of leaf weights; without it their source gets them exactly."""
    delta: float = 1e-5
    """δ of the same."""
    clip: float = 2.0
    """Bound of a leaf weight before noise, in units of the scaled label."""
    label_scale: float | None = None
    """Regression: scaled label = (label − `base_score`) / `label_scale`; without it by secure sums."""
    base_score: float | None = None
    """The score before the first tree, of two classes above 0 and below 1; by default 0.5, of numbers their mean."""
    gain_comparison: str = "announce"
    """Split parties announce their best gains, or compare them encrypted."""
    as_published: bool = False
    """The paper's own steps, which protect less; every policy must say pivodl_as_published = true."""

    @property
    def draws_records(self) -> bool:
        """False: every tree sums over all records."""
        return False

    @property
    def adds_noise(self) -> bool:
        """True if leaf weights have the noise of partial differential privacy."""
        return self.epsilon is not None

    @property
    def needs_moments(self) -> bool:
        """True if the mean or the spread of the labels is to be found by secure sums."""
        return self.regression and (self.label_scale is None or self.base_score is None)

    @property
    def class_names(self) -> list[str]:
        """Names of the classes, in order; of a regression none."""
        if self.regression:
            return []
        return list(self.classes) or (["0", "1"] if self.objective in BINARY else [])

    @property
    def width(self) -> int:
        """Numbers that a leaf holds; every tree has all outputs."""
        return self.outputs(len(self.class_names))

    def drawn(self, _tree: int, records: int) -> Ints:
        """Ones (N,): every tree takes each record once."""
        return np.ones(records, dtype=np.int64)

    def faults(self) -> list[str]:
        ranges = dict(_RANGES)
        ranges |= {name: allowed for name, allowed in _OPTIONAL.items() if getattr(self, name) is not None}
        if self.objective in BINARY and self.base_score is not None:
            ranges["base_score"] = Range(0, 1, open_low=True, open_high=True)
        wrong = not_a_choice(self, _CHOICES)
        in_order = {field.name: ranges[field.name] for field in fields(self) if field.name in ranges}
        wrong += out_of_range(self, in_order) + self.common_faults()
        wrong += [
            f"{name} must be 1: every tree of PIVODL takes all records and all columns"
            for name in ("subsample", "colsample_bytree")
            if getattr(self, name) != 1
        ]
        return wrong + self._classes() + not_a_switch(self, "as_published")

    def _classes(self) -> list[str]:
        names = list(self.classes)
        if self.regression:
            return ["classes must be left out of a regression"] if names else []
        # Names are parameters because no party sees the labels of all: two could number the classes differently.
        texts = all(isinstance(name, str) for name in names)
        rules = (
            (self.label_scale is not None, "label_scale is a parameter of a regression; leave it out"),
            (not texts, 'classes must be names as text, such as ["0", "1"]'),
            (texts and len(set(names)) < len(names), "classes names one of them twice"),
            (
                self.objective in BINARY and names and len(names) != 2,
                f"classes must be two for {self.objective}, not {len(names)}",
            ),
            (
                self.objective == "multi:softprob" and not 2 <= len(names) <= MOST_CLASSES,
                f"classes must list 2 to {MOST_CLASSES} names for {self.objective}, in order: no party has all labels, "
                "so that none can find them",
            ),
        )
        return [fault for wrong, fault in rules if wrong]

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types; classes as a list."""
        return {**super().to_dict(), "classes": list(self.classes)}
