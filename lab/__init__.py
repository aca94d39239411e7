"""The laboratory: experiments, frontiers, the Python front, audits and measured ε; core does without it."""
