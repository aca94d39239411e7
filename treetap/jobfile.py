"""The `[job]` table of a job or experiment file: parameters under XGBoost's scikit-learn names."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from treetap.config import Strict
from treetap.errors import BadInput
from treetap.names import Name
from treetap.trees.params import BoostingParams
from treetap.wire.jobspec import check_spec, params_to_wire
from treetap.wire.v1 import setup_pb2


class JobTable(Strict):
    """What to train and how; defaults are XGBoost's but for `max_bin` (32) and what XGBoost does not have."""

    protocol: Literal["boosting"] = "boosting"
    key_bits: Literal[512, 1024, 2048, 3072] = 2048
    obfuscation: Literal["short-exponent", "half-length", "standard"] = "short-exponent"
    alignment: Literal["psi", "sorted-ids"] = "psi"
    objective: str = "binary:logistic"
    n_estimators: int = 100
    max_depth: int = 6
    max_bin: int = 32
    learning_rate: float = 0.3
    reg_lambda: float = 1.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    multi_strategy: str = "one_output_per_tree"
    base_score: float | None = None
    early_stopping_rounds: int | None = None
    validation_share: float = 0.1
    missing: float = math.nan
    seed: int = 0

    @model_validator(mode="after")
    def _in_range(self) -> JobTable:
        try:
            self.params().validate()
        except BadInput as failure:
            raise ValueError(str(failure)) from None
        return self

    def params(self) -> BoostingParams:
        """The model's parameters."""
        return BoostingParams(
            objective=self.objective,
            n_estimators=self.n_estimators,
            max_depth=self.max_depth,
            max_bin=self.max_bin,
            learning_rate=self.learning_rate,
            reg_lambda=self.reg_lambda,
            gamma=self.gamma,
            min_child_weight=self.min_child_weight,
            subsample=self.subsample,
            colsample_bytree=self.colsample_bytree,
            multi_strategy=self.multi_strategy,
            base_score=self.base_score,
            early_stopping_rounds=self.early_stopping_rounds,
            validation_share=self.validation_share,
            missing=self.missing,
            seed=self.seed,
        )

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
            boosting=params_to_wire(self.params()),
        )
        check_spec(spec)
        return spec


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
