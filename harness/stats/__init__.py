"""Statistics that hold at every sample size and every stopping time; imports nothing of ours.

Everything that decides rests on one object, the e-process of a bounded score (`betting`): bounds are its inversion
(`intervals`), the kill criterion (`kill`), the comparison of two arms (`claims`) and many claims at once (`holm`) are
thresholds on it. Shown beside it and deciding nothing: narrower intervals for a fixed size (`star`), and asymptotic
ones (`asymptotic`). `power` plans sizes, from the truths that `scenarios` assumes.
"""
