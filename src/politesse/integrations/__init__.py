"""politesse inside other libraries: one module each, imported only by those who have the library."""
