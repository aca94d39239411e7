"""Results of experiments in the formats of tracking tools, which are extras."""
