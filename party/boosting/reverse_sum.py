"""The red-team setting of a label holder of boosting that marks records in g and h: `gradients = "reverse-sum"`."""

from __future__ import annotations

import logging

from party.config import PartyConfig
from party.runtime.context import StepContext
from treetap.errors import ConfigError
from treetap.trees.params import BoostingParams
from treetap.trees.reverse_sum import KEPT_BITS, ReverseSum

log = logging.getLogger(__name__)


def marks_of_job(config: PartyConfig, context: StepContext, params: BoostingParams, outputs: int) -> ReverseSum | None:
    """The marks of a job whose trees have that many outputs, which the log tells; None unless the party's file asks.

    Raises:
        ConfigError: g and h have no bits to spare for marks.
    """
    if config.gradients is None:
        return None
    marks = ReverseSum.of(params, outputs)
    if not marks.marks:
        raise ConfigError(
            f'gradients = "reverse-sum" of {context.party} marks records in bits of g and h beyond {KEPT_BITS}, and '
            f"the job has gradient_bits = {params.gradient_bits}: leave one of the two out",
            party=context.party,
        )
    log.warning(
        'job %s: gradients = "reverse-sum" in this party\'s file: every tree marks %d records in low bits of their g '
        "and h, so that sums tell their bins, an attack, for audits",
        context.job,
        marks.marks,
    )
    return marks
