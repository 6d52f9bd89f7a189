"""A result as one HTML page: parameters, scores, pictures, exactness, times, and how to repeat the run.

The page is one self-contained file (pictures are embedded, there are no scripts, nothing is fetched), so it can be
mailed, printed and archived. Slices of volumes have a slider that is made of radio buttons (`views`). A template
escapes all values. The `mgclust.algorithms.presentation.Presentation` of a method provides the parts of the page that
depend on the method.
"""

from mgclust.algorithms.presentation import EdgeSample, Sample, sample_index
from mgclust.output.report.page import draw_pictures, draw_views, draw_volume, sample_rows, write_report

__all__ = [
    "EdgeSample",
    "Sample",
    "draw_pictures",
    "draw_views",
    "draw_volume",
    "sample_index",
    "sample_rows",
    "write_report",
]
