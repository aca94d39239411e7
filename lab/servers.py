"""What the processes of a federation on this machine need: imported once, by the server from which they are forked."""

from __future__ import annotations

from treetap.process.fork_server import FORKS

MODULES = (
    *("treetap.commands.cli", "treetap.party.server.main", "treetap.party.opening", "treetap.coordinator.server"),
    *("treetap.party.boosting.label_holder", "treetap.party.boosting.feature_party", "treetap.coordinator.boosting"),
    *("treetap.party.interactive.label_holder", "treetap.party.interactive.feature_party"),
    *("treetap.party.growth.lattice_sums", "treetap.coordinator.interactive"),
)


def begin() -> None:
    """Have the server import them while this process does so itself."""
    FORKS.begin(MODULES)
