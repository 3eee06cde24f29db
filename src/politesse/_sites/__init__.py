"""Files of a site that are fetched like pages: data.txt, sitemaps, tdmrep.json."""
