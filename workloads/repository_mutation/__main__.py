"""`python -m workloads.repository_mutation`: fill the cache before a run, e.g. while there is a network.

Exit codes are those of `agentmesh`: 2 for what a person can mend, 130 when interrupted.
"""

import sys

from harness.core.errors import ConfigError
from workloads.repository_mutation.packages import PREPARE
from workloads.repository_mutation.prepare import prepare

BAD_INPUT, INTERRUPTED = 2, 130


def main() -> int:
    """Prepare, telling how far it is on stderr; the exit code."""
    try:
        prepare(_say)
    except ConfigError as error:
        _say(str(error))
        return BAD_INPUT
    except KeyboardInterrupt:
        _say(f"interrupted; what is ready is kept, and `{PREPARE}` goes on")
        return INTERRUPTED
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
