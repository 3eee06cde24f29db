"""Internal code that all packages share: texts, constants, checks of options, tasks, reasons."""
