"""Relays: hellos, routing, hostile relays, and federations whose processes meet there alone."""
