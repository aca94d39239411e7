"""The group by the native kernels, eight points at a time."""

from __future__ import annotations

from treetap.native import curve


class IfmaGroup:
    """See `treetap.psi.group.Group`.

    Raises:
        Unavailable: there are no kernels for this processor.
    """

    def __init__(self) -> None:
        curve.load()

    def hash_points(self, uniform: bytes) -> bytes:
        """See `Group.hash_points`."""
        return curve.hash_points(uniform)

    def raise_points(self, scalar: bytes, points: bytes) -> bytes:
        """See `Group.raise_points`."""
        return curve.raise_points(scalar, points)

    def leading_valid(self, points: bytes) -> int:
        """See `Group.leading_valid`."""
        return curve.leading_valid(points)
