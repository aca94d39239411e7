"""The `[job]` table of a job or experiment file: parameters under the names that XGBoost and scikit-learn give them."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, Literal

from pydantic import Field, model_validator

from treetap.errors import BadInput
from treetap.names import Name
from treetap.process.config import Strict
from treetap.protocols.job_spec import Params, check_spec, put_params
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.v1 import setup_pb2

#: Protocol → its parameters.
KINDS: dict[str, type[BoostingParams] | type[ForestParams]] = {"boosting": BoostingParams, "forest": ForestParams}


class JobTable(Strict):
    """What to train and how.

    A parameter that is not given has its protocol's default, one that the protocol does not have is refused.
    """

    protocol: Literal["boosting", "forest"] = "boosting"
    key_bits: Literal[512, 1024, 2048, 3072] = 2048
    obfuscation: Literal["short-exponent", "half-length", "standard"] = "short-exponent"
    alignment: Literal["psi", "sorted-ids"] = "psi"
    seed: int = 0
    missing: float = math.nan
    n_estimators: int | None = None
    max_depth: int | None = None
    max_bin: int | None = None
    subsample: float | None = None
    colsample_bytree: float | None = None
    objective: str | None = None
    learning_rate: float | None = None
    reg_lambda: float | None = None
    gamma: float | None = None
    min_child_weight: float | None = None
    multi_strategy: str | None = None
    base_score: float | None = None
    early_stopping_rounds: int | None = None
    validation_share: float | None = None
    criterion: str | None = None
    bootstrap: bool | None = None
    min_samples_leaf: int | None = None
    binning: str | None = None
    party_dropout: dict[Name, float] | None = None

    @model_validator(mode="after")
    def _in_range(self) -> JobTable:
        given = self._given()
        names = {field.name for field in fields(KINDS[self.protocol])}
        if foreign := [name for name in given if name not in names]:
            have = ", ".join(foreign)
            raise ValueError(f"protocol {self.protocol!r} has no parameter {have}; remove it, or name another protocol")
        try:
            self.params().validate()
        except BadInput as failure:
            raise ValueError(str(failure)) from None
        return self

    def params(self) -> Params:
        """The model's parameters."""
        return KINDS[self.protocol](**self._given(), seed=self.seed, missing=self.missing)

    def spec(self, label_holder: str, feature_parties: list[str], table: str) -> setup_pb2.JobSpec:
        """The job as it goes to the coordinator."""
        spec = setup_pb2.JobSpec(
            protocol=self.protocol,
            table=table,
            label_holder=label_holder,
            feature_parties=feature_parties,
            key_bits=self.key_bits,
            obfuscation=self.obfuscation,
            alignment=self.alignment,
        )
        put_params(spec, self.params())
        check_spec(spec)
        return spec

    def _given(self) -> dict[str, Any]:
        """Parameters of the model that the file names, but for those that every protocol has at every time."""
        common = {"protocol", "key_bits", "obfuscation", "alignment", "seed", "missing"}
        found = {name: getattr(self, name) for name in JobTable.model_fields if name not in common}
        return {name: value for name, value in found.items() if value is not None}


class JobTableOfFederation(JobTable):
    """A `[job]` table that also names the parties."""

    label_holder: Name
    feature_parties: list[Name] = Field(min_length=1)
    table: str = "train"


class JobFile(Strict):
    """The file that `treetap train` reads."""

    name: Name | None = None
    job: JobTableOfFederation

    def to_spec(self) -> setup_pb2.JobSpec:
        """The job as it goes to the coordinator."""
        return self.job.spec(self.job.label_holder, list(self.job.feature_parties), self.job.table)
