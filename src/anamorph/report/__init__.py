"""A report on a model: one HTML page with pictures, which needs no network."""

from anamorph.report.judging import Judgement
from anamorph.report.quality import write_quality
from anamorph.report.write import write_report

__all__ = ["Judgement", "write_quality", "write_report"]
