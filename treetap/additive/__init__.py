"""Additively homomorphic encryption: schemes whose ciphertexts are multiplied to add up plaintexts."""
