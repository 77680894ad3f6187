"""Commands of the command line that are not the run of an evaluation, one file for each concern.

Why apart from `cli`: each is a few lines of wiring, and together they would hide `eval`. A file has `add(app)`, which
registers its commands, and imports what they need inside of them, so that `agentmesh --help` stays quick.
"""

CONCERNS = (
    "listing",
    "calibrate",
    "prereg",
    "power",
    "query",
    "timeline",
    "specs",
    "telemetry",
    "ci",
    "replication",
    "cassette",
    "incidents",
    "parts",
    "sensitivity",
)
"""In the order of the help."""

NOT_AS_WANTED = 1
"""Exit code of a command that looks whether something holds, and it does not: a digest, a check, a second run."""
