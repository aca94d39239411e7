"""Residues by the arithmetic of this process (`treetap.native.arithmetic`); no other file asks which it is."""

from __future__ import annotations

from treetap.additive.residues.batches import Residues
from treetap.native import arithmetic


def residues(modulus: int, bits: int = 0) -> Residues:
    """The arithmetic of this process modulo an odd number.

    Args:
        modulus: the number.
        bits: length of the largest of several moduli whose residues are to be joined.
    """
    if arithmetic.in_use() == "ifma":
        from treetap.additive.residues.ifma_residues import IfmaResidues

        return IfmaResidues(modulus, max(bits, int(modulus).bit_length()))
    from treetap.additive.residues.gmpy2_residues import Gmpy2Residues

    return Gmpy2Residues(modulus)
