"""`treetap health`: does a party or a coordinator serve?"""
