"""Files that sites publish beside robots.txt; ``gate.datatxt`` and ``gate.sitemaps`` return them."""

from politesse._sites.data_txt import DataRecord, DataTxt
from politesse._sites.files import SiteFile
from politesse._sites.pages import DataTxtAnswer, Sitemaps
from politesse.verdict import FileOutcome

__all__ = ["DataRecord", "DataTxt", "DataTxtAnswer", "FileOutcome", "SiteFile", "Sitemaps"]
