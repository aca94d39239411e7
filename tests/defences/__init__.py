"""Defences of the label, in federations and apart."""
