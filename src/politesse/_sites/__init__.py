"""The files of a site that are requested like pages, and the pairing of many URLs with their verdicts.

    files.py      data.txt and tdmrep.json: their cache, and how they are fetched, with a turn for each hop; the answers
                  about data.txt, and the sitemaps of a robots.txt
    data_txt.py   the parser of data.txt
    filtering.py  pairs each item of a source with its verdict

The gate passes in what it decides: these modules import nothing of it.
"""
