"""What a conformance check says, and how one is made of a part that may fail in any way."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from harness.core.errors import HarnessBug

SHOWN_MAX = 3


class Answer(Struct, frozen=True):
    """Whether one thing holds. because: what is wrong, for the person who wrote the part; "" when it holds."""

    question: str
    because: str = ""

    @property
    def passed(self) -> bool:
        return not self.because


def asked(question: str, found: Callable[[], list[str]]) -> Answer:
    """The answer from a list of what is wrong. Foreign code may raise anything: that is an answer too."""
    try:
        wrong = found()
    except KeyboardInterrupt:
        raise
    except HarnessBug as error:  # books that do not add up, with a part that has a hand in them
        return Answer(question, f"the accounts of the trial do not add up: {error}")
    except Exception as error:
        return Answer(question, f"{type(error).__name__}: {error}")
    return Answer(question, listed(wrong))


def listed(wrong: list[str]) -> str:
    """The first few things that are wrong, and how many there are beyond them."""
    more = f"; and {len(wrong) - SHOWN_MAX} more" if len(wrong) > SHOWN_MAX else ""
    return "; ".join(wrong[:SHOWN_MAX]) + more
