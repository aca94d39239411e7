"""The names of features: sent by a feature party whose policy lets FEATURE_NAME and TOPOLOGY go to the label holder.

Other parties withhold them. name_features (feature party), take_names (label holder): after the alignment, if the
opening has `explain`. A message has the column's name, no threshold and no direction; for a text column no category
either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from party.prediction.job import PredictionJob
from party.runtime.context import Step, empty_result
from party.runtime.expected import Expected, Receives
from party.runtime.messages import batches
from party.runtime.step_order import StepOrder
from party.runtime.steps import StepId
from treetap.errors import Malformed
from treetap.protocols.emissions import CLASSES_OF_NAMES
from treetap.wire.v2 import control_pb2, prediction_pb2

log = logging.getLogger(__name__)
#: The phase of a role's table of steps in which names are sent; it has no step without `explain`.
NAMES = "names"
#: Most characters of a name.
LONGEST = 1000
#: The splits that a party owns, by handle.
HandlesOf = Callable[[str], Collection[int]]


def naming_steps(opening: prediction_pb2.OpenModel, party: str) -> list[StepId]:
    """The steps of the phase `NAMES` at a party."""
    if not opening.explain:
        return []
    return [("take_names" if party == opening.recipient else "name_features", 0, 0)]


class NamesSent:
    """A feature party's part: one step, and none without `explain`."""

    def __init__(self, job: PredictionJob, order: StepOrder, names: Mapping[int, str]) -> None:
        """`order`: the role's, with the phase `NAMES`; `names`: the own ones, by handle."""
        self._context, self._to = job.context, job.opening.recipient
        self._order, self._names = order, names
        self.steps: Mapping[str, Step] = {"name_features": self.name_features} if job.opening.explain else {}

    async def name_features(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Send all names, or the answer that they are withheld. The outbox checks the policy again."""
        self._order.check(request)
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
        self._order.done(request)
        return empty_result()


class NamesTaken:
    """The label holder's part: one step, and none without `explain`.

    Attributes:
        known: the names that parties have sent in this prediction, by party and handle.
        withheld: the parties that have withheld theirs.
    """

    def __init__(self, job: PredictionJob, order: StepOrder, handles_of: HandlesOf) -> None:
        """`order`: the role's, with the phase `NAMES`; `handles_of`: no split may be named but these."""
        self._job, self._order, self._handles_of = job, order, handles_of
        self.known: dict[str, dict[int, str]] = {}
        self.withheld: list[str] = []
        self.steps: Mapping[str, Step] = {"take_names": self.take_names} if job.opening.explain else {}
        self.receives: Receives = {"split_names": Expected(job.chain, self._size)} if job.opening.explain else {}

    async def take_names(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Take the names of each feature party that is present, and store them beside the model."""
        self._order.check(request)
        for party in self._job.chain:
            await self._take(party)
        self._job.store.keep_names(self._job.opening.model, self.known, self.withheld)
        self._order.done(request)
        return empty_result()

    def _size(self) -> int:
        """Most bytes of a party's names: of all splits that other parties have."""
        return (4 * LONGEST + 32) * sum(len(self._handles_of(party)) for party in self._job.chain)

    async def _take(self, party: str) -> None:
        handles, names, withheld = self._handles_of(party), dict[int, str](), False
        async for message in self._job.context.mailbox.series(party, "split_names", 0, 0):
            withheld |= message.prediction.split_names.withheld
            for row in message.prediction.split_names.names:
                if row.handle not in handles or row.handle in names:
                    raise Malformed(f"{party} names a feature of split {row.handle}, not its own or named before")
                if not row.feature or len(row.feature) > LONGEST:
                    raise Malformed(f"{party} names the feature of split {row.handle} by {len(row.feature)} characters")
                names[row.handle] = row.feature
        if withheld:
            self.withheld.append(party)
        else:
            self.known[party] = names
