"""Rows -> facts, verdicts in words, and one self-contained page. Reads records; never imports torch."""

from thermocline.report.advice import Advice
from thermocline.report.console import as_text, line, terminal
from thermocline.report.facts import Summary, summary
from thermocline.report.judge import Verdict, verdicts
from thermocline.report.page import load, render

__all__ = ["Advice", "Summary", "Verdict", "as_text", "line", "load", "render", "summary", "terminal", "verdicts"]
