"""`treetap health`: check that a party, a coordinator or a relay serves."""
