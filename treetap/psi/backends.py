"""The group by the arithmetic of this process (`treetap.native.arithmetic`); no other file asks which it is."""

from __future__ import annotations

from treetap.native import arithmetic
from treetap.psi.group import Group


def group() -> Group:
    """The arithmetic of this process for blinded identifiers."""
    if arithmetic.in_use() == "ifma":
        from treetap.psi.ifma_group import IfmaGroup

        return IfmaGroup()
    from treetap.psi.sodium_group import SodiumGroup

    return SodiumGroup()
