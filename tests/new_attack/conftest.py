"""The new attack's own tests run in a copy of the sources that has it, and in no other place."""

collect_ignore = ["files"]
