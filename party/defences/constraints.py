"""Checks that a job can have the monotone constraints of a party's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from party.defences.settings import Defences
from party.policy import Policy
from treetap.errors import ConfigError
from treetap.protocols.job_spec import params_of
from treetap.protocols.registry import training, training_name
from treetap.tables.config import TableConfig
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import setup_pb2


def refuse_repair(parties: Sequence[str], repairer: str) -> NoReturn:
    """Refuse constraints of these parties in trees whose leaves get new weights."""
    raise ConfigError(
        f"{', '.join(parties)}: has monotone constraints, and {repairer} repairs trees by grafting or refit: their "
        "weights come of clean labels, and would not keep the order that noisy ones had; leave one of them out"
    )


def check_constraints(
    party: str, defences: Defences, policy: Policy, own: TableConfig | None, spec: setup_pb2.JobSpec
) -> None:
    """Check a job that `check_spec` has passed. `own`: the party's table of the job; None where it has none.

    Raises:
        ConfigError: the job's trees cannot have the constraints, or this party repairs them.
        Refused: the policy lets no constraints go to the label holder.
    """
    if own is None or not own.directions:
        return
    name, params = training_name(spec), params_of(spec)
    if not training(name).monotone:
        raise ConfigError(
            f"monotone_constraints of table {spec.table!r} of {party}: they bound the weights of boosted trees, and "
            f"protocol {name!r} has none; train by boosting, or leave them out of {party}'s file"
        )
    assert isinstance(params, BoostingParams)
    params.check_constraints()
    if spec.aggregator != party:
        policy.check_emits(party, spec.aggregator, ["MONOTONE_DIRECTION"])
    elif defences.private_values:
        refuse_repair([party], party)
