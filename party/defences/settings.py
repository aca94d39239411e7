"""The table `[defences]` of a party's own file: what a label holder does against leakage of its labels.

No other party and no coordinator reads it, and nothing of it is in a job.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from treetap.strict import Strict
from treetap.trees.withholding import Withholding


class IdLmid(Strict):
    """ID-LMID (Takahashi, Liu, Liu 2023, Algorithm 5): no set of records that is shown exceeds ξ nats in Eq. 6.

    `xi`: ξ. `counts`: "shown" counts every record of a set that is shown; "paper" those that the tree draws, as the
    authors' experiments do.
    """

    xi: Annotated[float, Field(ge=0)]
    counts: Literal["shown", "paper"] = "shown"


class LabelDp(Strict):
    """Label differential privacy by LP-MST (Ghazi et al. 2021): ε, and the number of stages (LP-1ST, LP-2ST, ...)."""

    epsilon: Annotated[float, Field(gt=0, le=64)]
    stages: Annotated[int, Field(ge=1, le=16)] = 1


class ReducedLeakage(Strict):
    """The first `trees` trees are grown by the label holder alone (SecureBoost's Reduced-Leakage has one)."""

    trees: Annotated[int, Field(ge=1)]


class Defences(Strict):
    """Defences of the label; each may be left out.

    `grafting`: trees that noisy labels have spoilt are repaired with clean ones by the label holder alone. `refit`:
    the weights of leaves that no repair replaces are computed from clean labels.
    """

    id_lmid: IdLmid | None = None
    label_dp: LabelDp | None = None
    grafting: bool = False
    refit: bool = False
    reduced_leakage: ReducedLeakage | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> Defences:
        for name in ("grafting", "refit"):
            if getattr(self, name) and self.label_dp is None:
                raise ValueError(
                    f"{name} = true repairs what noisy labels spoil: add label_dp = {{epsilon = 1.0}}, or leave it out"
                )
        if self.grafting and self.id_lmid is not None:
            raise ValueError(
                "grafting and id_lmid do not go together: the one repairs subtrees that all parties know, the other "
                "withdraws them; leave one of them out"
            )
        return self

    @property
    def private_values(self) -> bool:
        """True if values of leaves depend on clean labels although all that is sent depends on noisy ones."""
        return self.grafting or self.refit

    @property
    def withholding(self) -> Withholding:
        """Sets and trees withheld from the other parties while trees grow."""
        limit = self.id_lmid
        return Withholding(
            own_trees=0 if self.reduced_leakage is None else self.reduced_leakage.trees,
            xi=None if limit is None else limit.xi,
            shown=limit is None or limit.counts == "shown",
        )

    def named(self) -> list[str]:
        """The names of the defences that are on."""
        return [name for name in type(self).model_fields if getattr(self, name)]
