"""A result as one page: what was run, what came out, how exact it is, where the time went, how to repeat it.

The page is one self-contained HTML file (pictures embedded, no scripts, nothing fetched), so that it can be mailed,
printed and archived. It is made of a template, which escapes whatever enters it, and of what the method's
`mgclust.algorithms.presentation.Presentation` says.
"""

from mgclust.algorithms.presentation import EdgeSample, Sample, sample_index
from mgclust.output.report.page import draw_pictures, draw_volume, sample_rows, write_report

__all__ = ["EdgeSample", "Sample", "draw_pictures", "draw_volume", "sample_index", "sample_rows", "write_report"]
