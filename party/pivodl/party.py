"""The role of every party of a PIVODL job; which of its two courses it takes depends on the job alone."""

from __future__ import annotations

from typing import Any

from party.config import PartyConfig
from party.pivodl.one_owner import OneOwner
from party.pivodl.several_owners import SeveralOwners
from party.runtime.context import StepContext
from treetap.protocols.job_spec import params_as
from treetap.trees.pivodl_params import PivodlParams
from treetap.wire.v2 import setup_pb2


def Party(config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> Any:
    """The role of a party: labels of several parties, or of one that gets the bins of all records."""
    centralised = params_as(spec, PivodlParams).centralised_labels
    return OneOwner(config, context, spec) if centralised else SeveralOwners(config, context, spec)
