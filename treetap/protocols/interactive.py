"""Multi-interactive inference: its options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from treetap.protocols.messages import (
    MessageRow,
    label_holder_opens,
    label_holder_reports,
    to_feature_parties,
    to_label_holder,
)
from treetap.protocols.registry import PredictionProtocol

if TYPE_CHECKING:
    from treetap.wire.v2 import setup_pb2

#: Order of walking the trees: all at once, or one after the other as the method was published.
FORMS = ("batched", "per-tree")


@dataclass(frozen=True)
class InteractiveOptions:
    """See `treetap.protocols.registry.Options`."""

    form: str = ""

    def completed(self, spec: setup_pb2.JobSpec) -> InteractiveOptions:
        """See `Options`: all trees at once."""
        del spec
        return replace(self, form=self.form or FORMS[0])

    def faults(self) -> list[str]:
        """See `Options`."""
        return [] if self.form in FORMS else [f"form = {self.form!r}: must be one of {', '.join(FORMS)}"]


PROTOCOL = PredictionProtocol(
    field="interactive",
    summary="a round of queries per level of the trees",
    options=InteractiveOptions,
    block=65_536,
    no_degrade="",
    sends=(
        MessageRow("route_queries", to_feature_parties),
        MessageRow("route_answers", to_label_holder),
        MessageRow("asked_directions", label_holder_reports),
    ),
    sends_served=(MessageRow("routed_block", label_holder_reports),),
    opens_sums=label_holder_opens,
    sends_attributions=(),
    library="",
    extra="",
    foreign=dict.fromkeys(
        ("scheme", "key_bits", "obfuscation"), "an interactive prediction encrypts nothing; leave it out"
    ),
)
