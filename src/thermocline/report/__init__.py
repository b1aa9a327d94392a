"""Rows -> facts, verdicts in words, and one self-contained page. Reads records; never imports torch."""

from thermocline.report.console import terminal
from thermocline.report.facts import Summary, summary
from thermocline.report.judge import Verdict, verdicts
from thermocline.report.page import render

__all__ = ["Summary", "Verdict", "render", "summary", "terminal", "verdicts"]
