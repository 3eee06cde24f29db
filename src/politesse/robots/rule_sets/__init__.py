"""Rules of one agent, compiled: one kind of rule set for each way in which dialects choose the rule that decides."""
