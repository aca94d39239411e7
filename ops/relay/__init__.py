"""The relay: a meeting point with one public port; `treetap.wire.relay` has what a process says to it."""
