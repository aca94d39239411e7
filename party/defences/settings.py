"""The table `[defences]` of a party's own file: what it does against leakage of its labels, and of its columns.

No other party and no coordinator reads it, and nothing of it is in a job. Of labels: `id_lmid`, `grafting`, `refit` and
`reduced_leakage` are of trees, `dimip` and `gradient` of split networks, `label_dp` of both. Of columns: `sensitivity`
and `dp_sgd`, at a feature party of a split network, and `min_cell_records`, `min_side_records` and `column_privacy`, at
one of trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, field_validator, model_validator

from treetap.errors import refuse
from treetap.neural.defences import (
    LEAST,
    MOST,
    SENSITIVITY_NORMS,
    DpSgd,
    FeatureDefences,
    GradientDefence,
    LabelDefences,
)
from treetap.protocols.exclusions import Feature, between
from treetap.strict import ProcessName, Strict

if TYPE_CHECKING:
    from treetap.trees.withholding import Withholding


class IdLmid(Strict):
    """ID-LMID (Takahashi, Liu, Liu 2023, Algorithm 5): no set of records that is shown exceeds ξ nats in Eq. 6."""

    xi: Annotated[float, Field(ge=0)]
    """ξ: most that a set of records which is shown may say about the labels, in nats."""
    counts: Literal["shown", "paper"] = "shown"
    """Records that count: all of a set that is shown, or, as in the paper, those that the tree draws."""


class LabelDp(Strict):
    """Label differential privacy by LP-MST (Ghazi et al. 2021): ε, and the number of stages (LP-1ST, LP-2ST, ...)."""

    epsilon: Annotated[float, Field(gt=0, le=64)]
    """ε of each record's label."""
    stages: Annotated[int, Field(ge=1, le=16)] = 1
    """Stages of LP-MST; two or more need features at the label holder."""


class ReducedLeakage(Strict):
    """The first `trees` trees are grown by the label holder alone (SecureBoost's Reduced-Leakage has one)."""

    trees: Annotated[int, Field(ge=1)]
    """Number of first trees that the label holder grows alone."""


#: Kind of a change of gradients → the keys that it needs, and those that it may have.
_GRADIENT_KEYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "noise": (("scale",), ()),
    "compression": (("share",), ()),
    "ppdl": (("share", "scale"), ("threshold",)),
    "levels": (("levels",), ("scale",)),
}


class Gradient(Strict):
    """A change of the gradients that return to feature parties: see `treetap.neural.defences.GradientDefence`."""

    kind: Literal["noise", "compression", "ppdl", "levels"]
    """The change: "noise" (needs `scale`), "compression" (`share`), "ppdl" (`share`, `scale`; may have `threshold`) or
    "levels" (`levels`; may have `scale`).
    """
    scale: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    """Scale of the Laplace noise."""
    share: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] | None = None
    """Share of the numbers that are sent."""
    threshold: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    """"ppdl": numbers whose size is less, each with noise, are not sent."""
    levels: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """"levels": intervals into which two deviations on each side of 0 are divided."""

    @model_validator(mode="after")
    def _keys_of_the_kind(self) -> Gradient:
        needed, allowed = _GRADIENT_KEYS[self.kind]
        given = {name for names in _GRADIENT_KEYS.values() for part in names for name in part}
        given = {name for name in given if getattr(self, name) is not None}
        if lacking := [name for name in needed if name not in given]:
            raise ValueError(f'kind = "{self.kind}" needs {" and ".join(lacking)}: add it')
        if foreign := sorted(given.difference(needed, allowed)):
            # the error says where the key belongs, which is mostly what was meant
            kinds = [kind for kind, keys in _GRADIENT_KEYS.items() if any(foreign[0] in part for part in keys)]
            raise ValueError(
                f'{" and ".join(foreign)}: kind = "{self.kind}" has none; leave it out ({foreign[0]} is of '
                f"{' and '.join(kinds)})"
            )
        return self

    @property
    def of_networks(self) -> GradientDefence:
        return GradientDefence(
            self.kind, self.scale or 0.0, self.share or 0.0, self.threshold or 0.0, levels=self.levels or 0
        )


class DpSgdTable(Strict):
    """DP-SGD (Abadi et al. 2016): see `treetap.neural.defences.DpSgd`."""

    clip: Annotated[float, Field(ge=LEAST, le=MOST, allow_inf_nan=False)]
    """Largest norm of a record's gradient."""
    noise: Annotated[float, Field(ge=LEAST, le=MOST, allow_inf_nan=False)]
    """Deviation of the noise on a batch's sum, as a multiple of `clip`."""


class ColumnPrivacyTable(Strict):
    """Noise on this party's sums: see docs/column-privacy.md."""

    epsilon: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    """ε of one attempt at a job, for a record's bin in one column, given the left sets."""
    delta: Annotated[float, Field(gt=0, lt=0.1)]
    """δ of it."""
    trees: Annotated[int, Field(ge=1, le=1_000_000)]
    """Most trees of a job; the noise grows with them, and a job with more is refused."""


#: Defences of a feature party's columns. All others are taken for defences of labels: no feature party refuses what
#: excludes these.
OF_COLUMNS = ("sensitivity", "dp_sgd", "min_cell_records", "min_side_records", "column_privacy")
#: Settings that say how a defence works.
_OPTIONS = ("sensitivity_norm", "projections")


class Defences(Strict):
    """Defences of labels and of columns; each may be left out. Those of networks: `treetap.neural.defences`."""

    id_lmid: IdLmid | None = None
    """Labels, trees: no set of records that is shown says more than ξ nats."""
    label_dp: LabelDp | None = None
    """Labels, trees and networks: train on noisy labels (label differential privacy)."""
    grafting: bool = False
    """With `label_dp`, trees: the label holder repairs alone, with clean labels, what noisy ones have spoilt."""
    refit: bool = False
    """With `label_dp`, trees: weights of leaves are computed from clean labels."""
    reduced_leakage: ReducedLeakage | None = None
    """Labels, trees: the label holder grows the first trees alone."""
    dimip: dict[ProcessName, Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]] = {}
    """Labels, networks: λ of DIMIP by feature party of the job."""
    gradient: Gradient | None = None
    """Labels, networks: a change of the gradients that return to feature parties."""
    sensitivity: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = 0.0
    """Columns (split networks): ε of SensFL, by which the Jacobian's norm of this party's embeddings is added to its
    own step. Not with dp_sgd.
    """
    sensitivity_norm: Literal[SENSITIVITY_NORMS] = "record"  # type: ignore[valid-type] # the mathematics has the list
    """The norm: the mean of each record's Jacobian, or that of the batch's, larger by about the root of batch_size."""
    projections: Annotated[int, Field(ge=1, le=1000)] = 1
    """Random directions by which the norm is estimated; it is exact where width × inputs is at most 20,000."""
    dp_sgd: DpSgdTable | None = None
    """Columns (split networks): DP-SGD of this party's own model, { clip = 1.0, noise = 0.1 }. It does not cover the
    embeddings that are sent. Not with norm = "batch" of images.
    """
    min_cell_records: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    """Columns (trees): merge bins so that no sum is of fewer drawn records than this, at most half of what a tree
    draws. The label holder learns the number.
    """
    min_side_records: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    """Columns (trees, privacy = "private"): no split of this party leaves fewer drawn records than this on a side, at
    most half of what a tree draws. The label holder learns the number.
    """
    column_privacy: ColumnPrivacyTable | None = None
    """Columns (boosting, forest): discrete Gaussian noise on every sum, { epsilon = 4.0, delta = 1e-6, trees =
    100 }. The other parties learn the three numbers.
    """

    @field_validator("dimip", mode="before")
    @classmethod
    def _by_party(cls, value: object) -> object:
        if not isinstance(value, dict):
            raise ValueError("must be a table, λ by feature party: dimip = {feature-b = 0.3}")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Defences:
        for name in ("grafting", "refit"):
            if getattr(self, name) and self.label_dp is None:
                raise ValueError(
                    f"{name} = true repairs what noisy labels spoil: add label_dp = {{epsilon = 1.0}}, or leave it out"
                )
        if self.grafting and self.id_lmid is not None:
            raise ValueError(str(between(Feature.GRAFTING, Feature.ID_LMID)))
        # an option alone has a default for its defence, which would leave the table without any effect
        idle = [name for name in _OPTIONS if name in self.model_fields_set]
        refuse(
            (
                idle and "sensitivity" not in self.model_fields_set,
                f"{' and '.join(idle)}: of sensitivity, which is not given; add sensitivity = 0.1, or leave it out",
            ),
            (self.sensitivity and self.dp_sgd is not None, str(between(Feature.SENSITIVITY, Feature.DP_SGD))),
        )
        return self

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    @property
    def private_values(self) -> bool:
        """True if values of leaves depend on clean labels although all that is sent depends on noisy ones."""
        return self.grafting or self.refit

    @property
    def withholding(self) -> Withholding:
        """Sets and trees withheld from the other parties while trees grow."""
        from treetap.trees.withholding import Withholding  # of jobs, as the rest of the mathematics

        limit = self.id_lmid
        return Withholding(
            own_trees=0 if self.reduced_leakage is None else self.reduced_leakage.trees,
            xi=None if limit is None else limit.xi,
            shown=limit is None or limit.counts == "shown",
        )

    @property
    def of_networks(self) -> LabelDefences:
        return LabelDefences(self.dimip, None if self.gradient is None else self.gradient.of_networks)

    @property
    def of_columns(self) -> FeatureDefences:
        """The changes that a feature party of a split network makes in its own steps."""
        dp_sgd = None if self.dp_sgd is None else DpSgd(self.dp_sgd.clip, self.dp_sgd.noise)
        return FeatureDefences(self.sensitivity, self.sensitivity_norm, self.projections, dp_sgd)

    def named(self, *, columns: bool = False) -> list[str]:
        """The names of the defences of labels, or those of columns, that are on."""
        names = [name for name in type(self).model_fields if name not in _OPTIONS and getattr(self, name)]
        return [name for name in names if (name in OF_COLUMNS) == columns]
