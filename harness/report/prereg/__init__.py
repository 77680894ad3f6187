"""The registration of a decision: its strict reader, its digests, and the parameters that statistics take from it.

A registration that could be read in two ways would be no registration, so unknown keys, repeated keys and numbers that
do not agree with each other are refused.
"""

from harness.report.prereg.read import Prereg, canonical_sha256, load_prereg, parse_prereg

__all__ = ["Prereg", "canonical_sha256", "load_prereg", "parse_prereg"]
