"""What is known of an origin: fetched once, kept while it is fresh, revalidated in the background."""
