"""`treetap health`: check that a party or a coordinator serves."""
