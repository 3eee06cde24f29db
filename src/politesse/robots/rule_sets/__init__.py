"""Compiled rules of an agent: a kind of rule set for each way in which dialects choose the deciding rule."""
