"""Operating characteristics of our own gate, by simulation: `python -m tests.characteristics`.

What a registered decision is worth is how often it is wrong when it should not be, and how often right when it should:
numbers of the procedure, not of any data, so they are measured and published beside it.
"""
