"""The names of features: sent by a feature party whose policy lets FEATURE_NAME and TOPOLOGY go to the label holder.

Other parties withhold them. name_features (feature party), take_names (label holder): after the alignment, if the
opening has `explain`. A message has the column's name, no threshold and no direction; for a text column no category
either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from party.runtime.context import StepContext, empty_result, required
from party.runtime.expected import Expected, Receives
from party.runtime.job_store import Store
from party.runtime.messages import batches
from party.runtime.step_order import StepOrder
from party.runtime.steps import Step, StepId
from treetap.errors import Malformed
from treetap.protocols.prediction import present
from treetap.protocols.scoring import CLASSES_OF_NAMES
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


class Naming:
    """One party's part in sending names; without `explain` it has no steps.

    Attributes:
        steps: by name.
        receives: what can come for them.
        sent: at the label holder, the names that parties have sent in this prediction.
        withheld: at the label holder, the parties that have withheld theirs.
    """

    def __init__(self, context: StepContext, store: Store, opening: prediction_pb2.OpenModel, order: StepOrder) -> None:
        """`order`: the role's, with the phase `NAMES`."""
        self._context, self._store, self._opening, self._order = context, store, opening, order
        self._own: dict[int, str] = {}
        self._handles_of: HandlesOf | None = None
        self.sent: dict[str, dict[int, str]] = {}
        self.withheld: list[str] = []
        self.steps: Mapping[str, Step] = {
            name: getattr(self, name) for name, _, _ in naming_steps(opening, context.party)
        }
        names = Expected(present(opening), self._size)
        self.receives: Receives = {"split_names": names} if "take_names" in self.steps else {}

    def give(self, own: dict[int, str]) -> None:
        """Set a feature party's names, by handle."""
        self._own = own

    def expect(self, handles_of: HandlesOf) -> None:
        """Set the splits that the label holder knows of; no other split may be named."""
        self._handles_of = handles_of

    async def name_features(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Send all names, or the answer that they are withheld. The outbox checks the policy again."""
        self._order.check(request)
        context, to = self._context, self._opening.recipient
        refused = [name for name in sorted(CLASSES_OF_NAMES) if not context.policy.may_emit(to, name)]
        if not refused:
            rows = (prediction_pb2.SplitName(handle=handle, feature=name) for handle, name in self._own.items())
            bodies = (prediction_pb2.SplitNames(names=batch) for batch in batches(rows))
            await context.outbox.send(to, "split_names", bodies)
        else:
            rule = ", ".join(f"emits.{name}" for name in refused)
            log.info("job %s: %s does not get the names of features (policy: %s)", context.job, to, rule)
            await context.outbox.send(to, "split_names", [prediction_pb2.SplitNames(withheld=True)])
        self._order.done(request)
        return empty_result()

    async def take_names(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Take the names of each feature party that is present, and store them beside the model."""
        self._order.check(request)
        for party in present(self._opening):
            await self._take(party)
        self._store.keep_names(self._opening.model, self.sent, self.withheld)
        self._order.done(request)
        return empty_result()

    def _size(self) -> int:
        """Most bytes of a party's names: of all splits that other parties have."""
        handles_of = self._handles_of
        if handles_of is None:
            return 0
        return (4 * LONGEST + 32) * sum(len(handles_of(party)) for party in present(self._opening))

    async def _take(self, party: str) -> None:
        handles = required(self._handles_of)(party)
        found: dict[int, str] = {}
        withheld = False
        async for message in self._context.mailbox.series(party, "split_names", 0, 0):
            withheld |= message.prediction.split_names.withheld
            for row in message.prediction.split_names.names:
                if row.handle not in handles or row.handle in found:
                    raise Malformed(f"{party} names a feature of split {row.handle}, not its own or named before")
                if not row.feature or len(row.feature) > LONGEST:
                    raise Malformed(f"{party} names the feature of split {row.handle} by {len(row.feature)} characters")
                found[row.handle] = row.feature
        if withheld:
            self.withheld.append(party)
        else:
            self.sent[party] = found
