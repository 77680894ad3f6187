"""Running trials in the live world: workers, supervisors, and the orchestrator processes that they start and bury."""
