"""The effect trace store: every trial, call, effect, verdict and fault of a run, as tables that SQL can ask.

Why a store beside the report: a reviewer's next question is never among the tables that were printed. It is built from
the sealed run and what was derived from it, and may be deleted at any time.
"""
