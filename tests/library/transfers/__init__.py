"""Oblivious transfers of left bits."""
