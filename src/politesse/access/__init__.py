"""Getting robots.txt, and how long what was got holds."""
