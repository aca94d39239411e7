"""A feature party's view of a split network: the gradients that it received, by record and epoch.

The party's own log has the rows of its table that the common records are.
"""

from __future__ import annotations

from attacks.view.gradient_rows import GradientRows
from attacks.view.received_rows import ReceivedRows


class NetworkView(ReceivedRows):
    """The gradients in the log of one feature party, which the label holder sent."""

    def gradients(self, epoch: int) -> GradientRows:
        """The gradients of an epoch.

        Raises:
            Malformed: a message does not fit its batch, or is of a batch that the party sat out.
        """
        return GradientRows(epoch, *self.rows(epoch))
