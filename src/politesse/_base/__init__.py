"""What all rooms share and no user imports: texts, constants, checks of options, tasks, reasons."""
