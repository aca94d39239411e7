"""Sums that nobody opens: a label holder and a feature party choose splits on additive shares (docs/cryptography.md).

streams         rounds of two parties, a dealer's randomness
products        products in rings of 64·w bits, numerators and denominators of scores
signs           signs of shared numbers, functions of shared bits
shuffle         an order that neither party knows
tournament      the largest fraction by opened outcomes
widths          widths of numbers, shares from masked sums
choice          what the label holder, a feature party and the dealer call in a stage
"""
