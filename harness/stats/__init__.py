"""Statistics that hold at every sample size and every stopping time; imports nothing of ours.

Everything rests on one object, the e-process of a bounded score (`betting`): bounds are its inversion (`intervals`),
the kill criterion (`kill`) and the comparison of two arms (`claims`) are thresholds on it.
"""
