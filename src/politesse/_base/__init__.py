"""Internal code that all packages share: texts, constants, checks of options, tasks, reasons."""

__version__ = "0.1.0"
