"""OpenTelemetry export: a trial is a trace, whose spans are what effects went through, linked to the faults that hit.

Why traces: every team that runs agents has a viewer for them, and a duplicate on a timeline, next to the fault that led
to it, convinces sooner than a rate.
"""
