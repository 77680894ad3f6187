"""The tables of the effect trace store: columns, types and what they mean, in one place.

Everything else follows from it: how files are loaded, what `agentmesh query --schema` prints, and which names an error
message offers.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

VERSION = 1
"""Goes up when rows are made otherwise under the same columns, so that older stores are built again."""


class Column(Struct, frozen=True):
    """A column: its name, its DuckDB type, and one line on what it means."""

    name: str
    type: str
    about: str


class Table(Struct, frozen=True, kw_only=True):
    """A table. grain: what one row is. scored: its rows come from the oracle, so that an unscored run has none."""

    name: str
    grain: str
    columns: tuple[Column, ...]
    scored: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def _table(name: str, grain: str, columns: str, *, scored: bool = False) -> Table:
    """A table from lines of `column TYPE meaning`."""
    parts = (line.split(None, 2) for line in columns.strip().splitlines())
    return Table(name=name, grain=grain, columns=tuple(Column(*part) for part in parts), scored=scored)


TABLES = (
    _table(
        "trials",
        "one trial; what the oracle said of it is NULL until the run is scored",
        """
        trial VARCHAR id of the trial
        pair VARCHAR id of its pair: the trials of all arms under the same faults
        index INTEGER number of the pair in registered order, from 0
        workload VARCHAR name of the workload
        arm VARCHAR name of the arm
        world VARCHAR live or sim
        seed BIGINT seed of the trial
        variation INTEGER level of variation of the agent, 0 to 3
        fault_class VARCHAR class of its faults, "none" for a twin without any
        variant VARCHAR variants of its faults, joined by +
        faults_scheduled INTEGER faults that the schedule asks for
        faults_armed INTEGER faults that were armed
        faults_fired INTEGER faults that fired
        faults_observed INTEGER faults whose harm was seen by the side that suffered
        faults_expired INTEGER faults that never fired
        status VARCHAR ended, stuck or invalid
        because VARCHAR why it is stuck or invalid
        duration_ms DOUBLE nominal duration
        real_s DOUBLE seconds on the real clock
        lag_ms DOUBLE largest lag of the scheduler, nominal
        tries INTEGER times that it was run; above 1 when it was invalid at first
        counted BOOLEAN whether it is in the registered prefix that reports rest on; NULL until there is a report
        exposed BOOLEAN whether all its scheduled faults fired
        success BOOLEAN whether every delegation was done and what was accepted is what was wanted
        intended INTEGER intended effects at the primary boundaries
        duplicated INTEGER intended effects there that were committed more often than required
        duplicates_gross INTEGER repetitions there, each counted
        lost INTEGER intended effects there that did not happen often enough
        stale INTEGER repetitions there by an attempt that was superseded
        phantom INTEGER effects there that nothing intended explains
        tokens_billed BIGINT tokens billed to agents
        tokens_live BIGINT of these: in what was accepted
        tokens_dead_end BIGINT of these: dead ends of an accepted attempt
        tokens_charged BIGINT of these: discarded by what descends from a fault
        tokens_spontaneous BIGINT of these: discarded by the arm without a fault
        tokens_destroyed BIGINT charged and spontaneous
        tokens_destroyed_lenient BIGINT destroyed, without work whose files were read again
        tokens_direct BIGINT charged, and hit by the fault itself
        turns_destroyed INTEGER completions that were discarded
        writes_destroyed INTEGER file writes that were discarded
        """,
    ),
    _table(
        "delegations",
        "one delegation of a trial that came to an end, or that the oracle asked for",
        """
        trial VARCHAR id of the trial
        delegation VARCHAR its name
        ended_ms DOUBLE when it ended last, nominal; NULL where it did not
        status VARCHAR how it ended last: done or failed
        code VARCHAR error code
        verdict VARCHAR verdict it ended with
        woken BOOLEAN whether it is a repair, which no plan runs by itself
        clean BOOLEAN whether it was done with every effect exactly once; NULL until the run is scored
        """,
    ),
    _table(
        "attempts",
        "one attempt at a delegation, as the orchestrator began it",
        """
        trial VARCHAR id of the trial
        delegation VARCHAR name of the delegation
        attempt INTEGER its number, from 1
        epoch INTEGER process of the orchestrator that began it, from 0
        resumed BOOLEAN whether it goes on from durable state after a restart
        depth INTEGER depth of the delegation
        began_ms DOUBLE nominal
        ended_ms DOUBLE nominal; NULL where its process died first
        status VARCHAR how it ended
        code VARCHAR error code
        because VARCHAR reason
        verdict VARCHAR verdict it ended with
        """,
    ),
    _table(
        "processes",
        "one process of the orchestrator",
        """
        trial VARCHAR id of the trial
        epoch INTEGER its number, from 0, over all hosts
        host VARCHAR the host that it ran on, "" where there was only one
        began_ms DOUBLE nominal
        exit_ms DOUBLE when its end was seen, nominal
        signal VARCHAR signal that ended it
        exit_code INTEGER code that it ended with
        """,
    ),
    _table(
        "turns",
        "one turn: a model call and the tool calls that follow from it",
        """
        trial VARCHAR id of the trial
        delegation VARCHAR name of the delegation
        attempt INTEGER number of the attempt
        phase VARCHAR phase of the life cycle
        epoch INTEGER process of the orchestrator
        turn INTEGER its number in the phase, from 0
        at_ms DOUBLE when it was over, nominal
        completion VARCHAR id of the completion it acted on; see bills
        replayed BOOLEAN whether the completion came from a journal and not from the provider
        reads INTEGER files read
        writes INTEGER files written or edited
        checks INTEGER checks run
        checks_failed INTEGER checks that failed, as the agent was told
        done BOOLEAN whether the agent said that it is done
        files_read JSON [[path, digest], ...]
        files_written JSON [[path, digest, write or edit], ...]
        """,
    ),
    _table(
        "calls",
        "one call that the orchestrator made at a seam, with what it was told",
        """
        trial VARCHAR id of the trial
        call_id VARCHAR id within the trial
        kind VARCHAR model, tool, effect or commit
        delegation VARCHAR delegation of its site
        phase VARCHAR phase of its site
        seam VARCHAR S1, S2 or S3
        site VARCHAR name of its site: chat, the tool, the boundary, stage or publish
        attempt INTEGER number of the attempt
        turn INTEGER number of the turn
        epoch INTEGER process of the orchestrator
        at_ms DOUBLE when it was made, nominal
        ended_ms DOUBLE when the orchestrator was told, nominal; NULL where it never was
        result VARCHAR ok, err or refused; NULL where it was told nothing
        verdict VARCHAR verdict of the arm
        code VARCHAR error code
        definite BOOLEAN whether an error certainly did not happen
        because VARCHAR reason of a refusal
        receipt VARCHAR receipt that it was told
        passed BOOLEAN answer of a check, as it was told
        arm_us DOUBLE real microseconds that the arm's layers took of it; live world only
        crossings INTEGER times that it came out of the arm towards the world (effects)
        crossed_ms DOUBLE first of these, nominal
        fault INTEGER number of the fault that fired at it
        tool VARCHAR tool that was called
        check_name VARCHAR check that was run
        args JSON arguments of the tool
        model VARCHAR model that was asked for
        boundary VARCHAR boundary of an effect
        operation VARCHAR operation of an effect
        target VARCHAR target of an effect
        payload JSON payload of an effect
        cause VARCHAR call_id of the tool call that an effect came from
        origin VARCHAR check or hook that an effect came from
        """,
    ),
    _table(
        "effects",
        "one durable effect at its sink; of a batch, one row for each natural key that it carries",
        """
        trial VARCHAR id of the trial
        position INTEGER position of the effect in the trial's truth; with `trial`, its identity
        at_ms DOUBLE when it was durable, nominal
        epoch INTEGER process of the orchestrator
        boundary VARCHAR transport, database, registry, provider, repository or hook
        receipt VARCHAR receipt of the sink
        call_id VARCHAR call that most likely caused it; from receipts alone until the run is scored
        natural_key VARCHAR what the oracle knows it by; NULL until the run is scored
        delegation VARCHAR delegation that it was intended in
        required INTEGER times that it must happen
        occurrence INTEGER which occurrence of its key this is, from 1
        duplicate BOOLEAN whether it is one more than required
        phantom BOOLEAN whether nothing intended explains it
        superseded BOOLEAN whether the attempt that caused it had been superseded
        stale BOOLEAN whether it is counted as a stale repetition
        data JSON all that the sink said
        """,
    ),
    _table(
        "verdicts",
        "one verdict that the orchestrator was told, of a call or of a delegation",
        """
        trial VARCHAR id of the trial
        at_ms DOUBLE nominal
        epoch INTEGER process of the orchestrator
        source VARCHAR call or delegation
        verdict VARCHAR the verdict
        call_id VARCHAR the call; NULL for a delegation's
        delegation VARCHAR delegation
        phase VARCHAR phase of the call
        seam VARCHAR seam of the call
        site VARCHAR name of the call's site
        """,
    ),
    _table(
        "faults",
        "one scheduled fault",
        """
        trial VARCHAR id of the trial
        fault INTEGER its number in the trial, from 0
        fault_class VARCHAR its class
        variant VARCHAR its variant
        state VARCHAR last state: armed, fired, observed or expired
        armed_ms DOUBLE nominal
        fired_ms DOUBLE nominal; NULL where it never fired
        evidence_ms DOUBLE when the side that suffered said so, nominal
        settled_ms DOUBLE when it was entered as observed or expired: the end of the trial
        fate VARCHAR what it did: delay, fail, hang, die, cut or alter
        how VARCHAR way in which it did that, such as reset or timeout
        ms DOUBLE how long it lasts, nominal; NULL where it has no end or no length
        call_id VARCHAR call that it fired at
        delegation VARCHAR delegation that it fired in
        phase VARCHAR phase that it fired in
        seam VARCHAR seam that it fired at
        site VARCHAR name of the site that it fired at
        strike JSON where it was to strike
        evidence JSON what the side that suffered said
        """,
    ),
    _table(
        "bills",
        "one completion that the provider billed",
        """
        trial VARCHAR id of the trial
        completion VARCHAR its id
        at_ms DOUBLE nominal
        delegation VARCHAR delegation that asked; NULL for a service under test
        phase VARCHAR phase that asked
        model VARCHAR model that was asked for
        prompt_tokens INTEGER tokens of the prompt
        completion_tokens INTEGER tokens of the answer
        tokens INTEGER both
        nth INTEGER how many completions were billed at its site before
        drifting BOOLEAN whether it is part of a scripted loop
        delivered BOOLEAN whether its answer arrived; NULL where nobody knows
        """,
    ),
    _table(
        "notes",
        "one remark of an arm",
        """
        trial VARCHAR id of the trial
        at_ms DOUBLE nominal
        epoch INTEGER process of the orchestrator
        note VARCHAR what it is about
        delegation VARCHAR delegation it speaks of
        call_id VARCHAR call it speaks of
        data JSON all of it
        """,
    ),
    _table(
        "findings",
        "what the oracle says of one natural key of a trial",
        """
        trial VARCHAR id of the trial
        boundary VARCHAR boundary of the key
        natural_key VARCHAR the key
        delegation VARCHAR delegation that it was intended in
        required INTEGER times that it must happen
        observed INTEGER durable effects at the sink
        duplicated INTEGER intended effects committed more often than required
        lost INTEGER intended effects that did not happen
        stale INTEGER repetitions by an attempt that was superseded
        status VARCHAR exactly_once, duplicate, phantom, or why it is lost
        """,
        scored=True,
    ),
    _table(
        "metrics",
        "one metric of a trial",
        """
        trial VARCHAR id of the trial
        metric VARCHAR its name
        value DOUBLE NULL where it has no value
        unit VARCHAR its unit
        not_applicable VARCHAR why it has no value
        """,
        scored=True,
    ),
    _table(
        "violations",
        "one trace specification that a trial broke",
        """
        trial VARCHAR id of the trial
        spec VARCHAR its name
        times INTEGER how often
        """,
        scored=True,
    ),
)

BY_NAME = {table.name: table for table in TABLES}


def described() -> Iterator[str]:
    """The tables and columns, one line each, for a person who writes a query."""
    yield "Every table also has a first column `run`: the folder's name. Times are nominal ms since the trial began."
    for table in TABLES:
        yield ""
        yield f"{table.name}: {table.grain}{' [scored runs]' if table.scored else ''}"
        yield from (f"  {column.name:<25} {column.type:<8} {column.about}" for column in table.columns)
