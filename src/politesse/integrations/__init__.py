"""Integrations of politesse with other libraries: one module or package for each library, which must be installed."""
