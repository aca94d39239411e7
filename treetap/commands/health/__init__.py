"""`treetap health`: check that a server of a federation serves."""
