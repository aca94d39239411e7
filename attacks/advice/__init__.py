"""Advice: what lowers an attack on this protocol's trainings, with measured effects and the lines to write."""
