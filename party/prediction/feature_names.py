"""The names of features: sent by a feature party whose policy lets FEATURE_NAME and TOPOLOGY go to the label holder.

Other parties withhold them. name_features (feature party), take_names (label holder): after the alignment, if the
opening has `explain`. A message has the column's name, no threshold and no direction; for a text column no category
either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from treetap.errors import Malformed
from treetap.party.protocols import PredictionJob
from treetap.party.runtime.messages import batches
from treetap.party.runtime.step_order import StepId, step
from treetap.protocols.scoring import CLASSES_OF_NAMES, LONGEST_NAME
from treetap.wire.v2 import prediction_pb2

log = logging.getLogger(__name__)
#: The splits that a party owns, by handle.
HandlesOf = Callable[[str], Collection[int]]


class NamesSent:
    """A feature party's part, the phase `NAMES`: one step, and none without `explain`."""

    def __init__(self, job: PredictionJob, names: Mapping[int, str]) -> None:
        """`names`: the own ones, by handle."""
        self._context, self._to, self._names = job.context, job.opening.recipient, names
        self.sequence: Sequence[StepId] = [("name_features", 0, 0)] if job.opening.explain else []

    @step()
    async def name_features(self) -> None:
        """Send all names, or the answer that they are withheld. The outbox checks the policy again."""
        context, to = self._context, self._to
        refused = [name for name in sorted(CLASSES_OF_NAMES) if not context.policy.may_emit(to, name)]
        if not refused:
            rows = (prediction_pb2.SplitName(handle=handle, feature=name) for handle, name in self._names.items())
            bodies = (prediction_pb2.SplitNames(names=batch) for batch in batches(rows))
            await context.outbox.send(to, "split_names", bodies)
        else:
            rule = ", ".join(f"emits.{name}" for name in refused)
            log.info("job %s: %s does not get the names of features (policy: %s)", context.job, to, rule)
            await context.outbox.send(to, "split_names", [prediction_pb2.SplitNames(withheld=True)])


class NamesTaken:
    """The label holder's part, the phase `NAMES`: one step, and none without `explain`.

    Attributes:
        known: the names that parties have sent in this prediction, by party and handle.
        withheld: the parties that have withheld theirs.
    """

    def __init__(self, job: PredictionJob, handles_of: HandlesOf) -> None:
        """`handles_of`: no split may be named but these."""
        self._job, self._handles_of = job, handles_of
        self.known: dict[str, dict[int, str]] = {}
        self.withheld: list[str] = []
        self.sequence: Sequence[StepId] = [("take_names", 0, 0)] if job.opening.explain else []

    @step()
    async def take_names(self) -> None:
        """Take the names of each feature party that is present, and store them beside the model."""
        for party in self._job.chain:
            await self._take(party)
        self._job.store.keep_names(self._job.opening.model, self.known, self.withheld)

    async def _take(self, party: str) -> None:
        handles, names, withheld = self._handles_of(party), dict[int, str](), False
        async for message in self._job.context.mailbox.series(party, "split_names", 0, 0):
            withheld |= message.prediction.split_names.withheld
            for row in message.prediction.split_names.names:
                if row.handle not in handles or row.handle in names:
                    raise Malformed(f"{party} names a feature of split {row.handle}, not its own or named before")
                if not row.feature or len(row.feature) > LONGEST_NAME:
                    raise Malformed(f"{party} names the feature of split {row.handle} by {len(row.feature)} characters")
                names[row.handle] = row.feature
        if withheld:
            self.withheld.append(party)
        else:
            self.known[party] = names
