"""Draws of an attacker: the same at each repetition with one seed."""

from __future__ import annotations

from treetap.neural.draws import Draws


def attack_draws(seed: int) -> Draws:
    """Draws of the attacks with a seed, apart from those of any job."""
    return Draws(f"attack {int(seed)}".encode())
