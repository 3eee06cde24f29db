"""Mutants: single lines of the source, each broken by one edit, and the test that fails for each (``list.jsonl``)."""
