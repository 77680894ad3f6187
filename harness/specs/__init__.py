"""Trace specifications: what must hold in every trial, written as data and checked when the trial is scored.

Why apart from metrics: a metric compares arms, and a broken specification means that an arm, the orchestrator or the
harness itself did something that nobody may do, so that the numbers of its trial are worth less than they look.
"""

from harness.specs.check import Checker, Violation, check, row_of, standard
from harness.specs.language import Spec, load, registered

__all__ = ["Checker", "Spec", "Violation", "check", "load", "registered", "row_of", "standard"]
