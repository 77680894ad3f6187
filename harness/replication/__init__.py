"""A run as something that others can check, compare and do again: bundle, verify, compare, replicate.

Why apart from the run: nothing here is needed to make a result, and everything here doubts one.
"""
