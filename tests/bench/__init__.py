"""Speed, each figure beside a physical limit that was measured in the same run: `python -m tests.bench [--quick]`.

Why ratios: seconds belong to a machine and to what else ran on it, a ratio to what the same machine could do at the
same moment can be compared. Nothing here is a test; no figure is asserted.
"""
