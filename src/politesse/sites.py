"""What sites publish beside robots.txt, as ``gate.datatxt`` and ``gate.sitemaps`` return it."""

from politesse._cache.files import SiteFile
from politesse._sites.data_txt import DataRecord, DataTxt
from politesse._sites.pages import DataTxtAnswer, Sitemaps
from politesse.verdict import FileOutcome

__all__ = ["DataRecord", "DataTxt", "DataTxtAnswer", "FileOutcome", "SiteFile", "Sitemaps"]
