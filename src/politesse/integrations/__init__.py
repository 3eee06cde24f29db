"""politesse inside other libraries: one module or package each, which needs that library installed."""
