"""Queries worth having by name: the questions that a reader of a report asks next.

`agentmesh query RUN NAME` runs one of them, `agentmesh query --cookbook` prints them. Counts that a summary has, too,
are over the registered prefix and valid trials, so that they are the same numbers.
"""

from __future__ import annotations

from msgspec import Struct


class Recipe(Struct, frozen=True):
    """A named query and the question that it answers."""

    name: str
    question: str
    sql: str


COOKBOOK = (
    Recipe(
        "duplicates-by-arm",
        "How many intended effects did each arm commit more often than required?",
        """SELECT arm, count(*) AS trials, sum(duplicated) AS duplicated, sum(intended) AS intended,
       sum(duplicated) / sum(intended) AS rate, sum(lost) AS lost
FROM trials
WHERE counted IS NOT FALSE AND status <> 'invalid' AND fault_class <> 'none'
GROUP BY arm ORDER BY rate DESC, arm""",
    ),
    Recipe(
        "work-by-fault",
        "How much work was destroyed per scheduled fault, by class of fault and arm?",
        """SELECT fault_class, arm, count(*) AS trials, sum(tokens_destroyed) AS tokens_destroyed,
       sum(faults_scheduled) AS faults, sum(tokens_destroyed) / sum(faults_scheduled) AS tokens_per_fault
FROM trials
WHERE counted IS NOT FALSE AND status <> 'invalid' AND fault_class <> 'none'
GROUP BY ALL ORDER BY fault_class, tokens_per_fault DESC, arm""",
    ),
    Recipe(
        "duplicates-and-faults",
        "Which effects were committed once too often, by which call, and which fault had fired last before?",
        """SELECT t.arm, e.trial, e.boundary, e.natural_key, e.occurrence, e.required, e.receipt, e.call_id,
       f.fault, f.fault_class, f.variant, f.fate, e.at_ms - f.fired_ms AS ms_after_fault
FROM effects e JOIN trials t USING (run, trial)
ASOF LEFT JOIN (SELECT * FROM faults WHERE fired_ms IS NOT NULL) f
     ON e.run = f.run AND e.trial = f.trial AND e.at_ms >= f.fired_ms
WHERE e.duplicate
ORDER BY t.index, t.arm, e.trial, e.position""",
    ),
    Recipe(
        "losses-by-boundary",
        "Where and why were intended effects lost?",
        """SELECT t.arm, f.boundary, f.status, sum(f.lost) AS lost
FROM findings f JOIN trials t USING (run, trial)
WHERE f.lost > 0 AND t.counted IS NOT FALSE AND t.fault_class <> 'none'
GROUP BY ALL ORDER BY lost DESC, t.arm, f.boundary, f.status""",
    ),
    Recipe(
        "verdicts-by-arm",
        "How often did each arm say what?",
        """SELECT t.arm, v.verdict, count(*) AS times
FROM verdicts v JOIN trials t USING (run, trial)
WHERE t.counted IS NOT FALSE AND t.status <> 'invalid' AND t.fault_class <> 'none'
GROUP BY ALL ORDER BY t.arm, times DESC, v.verdict""",
    ),
    Recipe(
        "exposure",
        "How many faults were armed, fired, were seen by the side that suffered, or expired?",
        """SELECT t.fault_class, t.arm, count(*) AS armed, count(f.fired_ms) AS fired,
       count(*) FILTER (f.state = 'observed') AS observed, count(*) FILTER (f.state = 'expired') AS expired
FROM faults f JOIN trials t USING (run, trial)
WHERE t.counted IS NOT FALSE
GROUP BY ALL ORDER BY t.fault_class, t.arm""",
    ),
    Recipe(
        "pairs-that-differ",
        "In which pairs did two arms differ by the most duplicates? (first and last arm by name, unless edited)",
        """WITH ends AS (SELECT min(arm) AS one, max(arm) AS other FROM trials)
SELECT a.index AS pair, a.fault_class, a.variant, a.arm AS arm_a, a.trial AS trial_a, a.duplicated AS duplicated_a,
       b.arm AS arm_b, b.trial AS trial_b, b.duplicated AS duplicated_b
FROM trials a JOIN trials b USING (run, pair), ends
WHERE a.arm = ends.one AND b.arm = ends.other AND a.duplicated <> b.duplicated
ORDER BY abs(a.duplicated - b.duplicated) DESC, pair""",
    ),
    Recipe(
        "seam-times",
        "How long do calls take at each seam, in nominal milliseconds?",
        """SELECT t.arm, c.seam, c.site, count(*) AS calls, median(c.ended_ms - c.at_ms) AS p50_ms,
       quantile_cont(c.ended_ms - c.at_ms, 0.99) AS p99_ms, count(*) FILTER (c.ended_ms IS NULL) AS never_answered
FROM calls c JOIN trials t USING (run, trial)
GROUP BY ALL ORDER BY t.arm, c.seam, c.site""",
    ),
    Recipe(
        "restarts",
        "After each death of the orchestrator: how long until it was back, and how long until it called again?",
        """SELECT t.arm, p.trial, p.epoch AS died, p.signal, q.began_ms - p.exit_ms AS back_after_ms,
       (SELECT min(c.at_ms) FROM calls c WHERE c.run = p.run AND c.trial = p.trial AND c.epoch = q.epoch) - p.exit_ms
       AS calls_after_ms
FROM processes p JOIN trials t USING (run, trial)
JOIN processes q ON q.run = p.run AND q.trial = p.trial AND q.epoch =
  (SELECT min(n.epoch) FROM processes n
   WHERE n.run = p.run AND n.trial = p.trial AND n.host = p.host AND n.epoch > p.epoch)
WHERE p.signal IS NOT NULL
ORDER BY t.index, t.arm, p.trial, p.epoch""",
    ),
)

BY_NAME = {recipe.name: recipe for recipe in COOKBOOK}
