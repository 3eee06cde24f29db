"""``python -m politesse.cli`` is the command ``politesse``."""

from politesse.cli import main

if __name__ == "__main__":
    main()
