"""Operation: pages for people, a relay, persons forgotten, checks of a process; core does without it."""
