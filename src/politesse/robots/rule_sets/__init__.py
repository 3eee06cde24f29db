"""The compiled rules of an agent, with a kind of rule set for each way to choose the deciding rule."""
