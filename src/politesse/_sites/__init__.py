"""Files that a site publishes and that are fetched as pages: data.txt, sitemaps, tdmrep.json."""
