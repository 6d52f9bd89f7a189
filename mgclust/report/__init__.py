"""A result as one page: what was run, what came out, how exact it is, where the time went, how to repeat it.

The page is one self-contained HTML file (pictures embedded, no scripts, nothing fetched), so that it can be
mailed, printed and archived. Text from outside (file names, warnings) is escaped wherever it enters the page.
"""

from mgclust.report.page import write_report
from mgclust.report.pictures import EdgeSample, Sample, draw_pictures, sample_index, sample_rows

__all__ = ["EdgeSample", "Sample", "draw_pictures", "sample_index", "sample_rows", "write_report"]
