"""What is true of one instance of the keyed order system: the facts of the order system that it is a version of."""

from workloads.codegen.facts import Facts, facts

__all__ = ["Facts", "facts"]
