"""The copies of robots.txt and other files: fetched once, kept while fresh, revalidated in the background."""
