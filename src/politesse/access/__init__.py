"""Import paths of earlier releases; use ``politesse.fetch``."""
