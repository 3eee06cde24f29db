"""The command ``politesse``; needs the extra ``cli``."""
