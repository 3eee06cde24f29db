"""Files that sites publish beside robots.txt; ``gate.datatxt`` and ``gate.sitemaps`` return them."""

from politesse._sites.data_txt import DataRecord, DataTxt
from politesse._sites.files import DataTxtAnswer, SiteFile, Sitemaps
from politesse.verdict import FileOutcome

__all__ = ["DataRecord", "DataTxt", "DataTxtAnswer", "FileOutcome", "SiteFile", "Sitemaps"]
