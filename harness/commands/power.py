"""`agentmesh power`: how many pairs a wanted claim needs, before any pair is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from harness.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from harness.report.prereg import Prereg
    from harness.stats.power import Design, Power, Truth
    from harness.stats.scenarios import Clustering

MAIN = Path("schedules/main.yaml")
CHANCE = "chance within so many pairs"
NEEDED = ("pairs, 90 %", "pairs, 50 %", "pairs, best case")
GRID = (60, 100, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200)

Registered = Annotated[Path | None, typer.Argument(help="Registration; by default that of schedules/main.yaml.")]
Duplicates = Annotated[float, typer.Option(help="Control: share of intended effects duplicated, faults forced.")]
Work = Annotated[float, typer.Option(help="Control: tokens destroyed per scheduled fault.")]
RatioOption = Annotated[float, typer.Option(help="Harm of the treatment over harm of the control.")]
ClusteringOption = Annotated[
    str, typer.Option(help="How harm clusters in trials: low, med (bursts), high (all or none).")
]
Lost = Annotated[float, typer.Option(help="Share of effects lost, in both arms alike.")]
Discordant = Annotated[float, typer.Option(help="Share of pairs in which just one arm succeeds.")]
ClaimOption = Annotated[list[str] | None, typer.Option(help="Only this claim; may be repeated.")]
PairsMax = Annotated[int | None, typer.Option(help="Look as far as this, instead of the registered number of pairs.")]
Replications = Annotated[int, typer.Option(min=50, help="Simulated runs; the error of a chance is 2.5 points at 400.")]


def add(app: typer.Typer) -> None:
    """Register the command."""

    @app.command()
    def power(
        prereg: Registered = None,
        duplicates: Duplicates = 0.07,
        work: Work = 1000.0,
        ratio: RatioOption = 0.1,
        clustering: ClusteringOption = "med",
        lost: Lost = 0.0,
        discordant: Discordant = 0.02,
        claim: ClaimOption = None,
        pairs_max: PairsMax = None,
        replications: Replications = 400,
    ) -> None:
        """Plan the pairs for a claim: chance of each decision if the truth is as assumed, by simulation."""
        from harness.console import progress
        from harness.report.prereg import load_prereg
        from harness.stats.power import power as simulate

        registered = load_prereg(prereg or main_registration())
        claims = _claims(claim)
        design = plan(registered, pairs_max)
        truth = assumed(registered, duplicates, work, ratio, clustering, lost, discordant)
        grid = [n for n in GRID if n < design.kill.pairs_max] + [design.kill.pairs_max]
        with progress("simulated runs") as step:
            found = simulate(design, truth, grid, claims, replications, lambda done, total: step(done, total, ""))
        for line in (*_assumptions(registered, design, truth), "", *table(found, grid)):
            typer.echo(line)


def main_registration(schedule: Path = MAIN) -> Path:
    """The registration that the main schedule names."""
    from harness.core import strict_yaml

    named = strict_yaml.read(schedule).value.get("preregistration")
    if not named:
        raise ConfigError("names no registration", where=str(schedule), hint="give one: agentmesh power FILE")
    return Path(named)


def plan(prereg: Prereg, pairs_max: int | None = None) -> Design:
    """What a registration fixes, in the terms of `harness.stats.power`."""
    from dataclasses import replace

    from harness.report.planning import design_of

    design = design_of(prereg)
    if pairs_max is None:
        return design
    if pairs_max < design.kill.pairs_min:
        raise ConfigError(f"--pairs-max is {pairs_max}", allowed=f"{design.kill.pairs_min} (pairs_min) or more")
    return replace(design, kill=replace(design.kill, pairs_max=pairs_max))


def assumed(
    prereg: Prereg, duplicates: float, work: float, ratio: float, clustering: str, lost: float, discordant: float
) -> Truth:
    """The assumptions in the terms of `harness.stats.power`. Raises ConfigError for what cannot be."""
    from harness.stats.power import Truth
    from harness.stats.scenarios import CLUSTERINGS

    budget = prereg.design.token_budget_per_trial / prereg.design.faults_scheduled_per_trial
    bounds = {
        "--duplicates": (duplicates, 1.0),
        "--work": (work, budget),
        "--ratio": (ratio, 1 / max(duplicates, work / budget, 1e-9)),
        "--lost": (lost, 1.0),
        "--discordant": (discordant, 1.0),
    }
    for option, (value, most) in bounds.items():
        if not 0 <= value <= most:
            raise ConfigError(f"{option} is {value:g}", allowed=f"0 to {most:g}")
    if clustering not in CLUSTERINGS:
        hint = did_you_mean(clustering, CLUSTERINGS)
        raise ConfigError(f"--clustering is {clustering!r}", allowed=", ".join(CLUSTERINGS), hint=hint)
    return Truth(duplicates, work / budget, cast("Clustering", clustering), ratio, lost, discordant)


def table(found: Sequence[Power], grid: Sequence[int]) -> Iterator[str]:
    """Plain text: a line for each claim, a column for each number of pairs."""
    width = max(len(CHANCE), *(len(line.claim) for line in found))
    yield f"{CHANCE:<{width}}" + "".join(f"{n:>7}" for n in grid) + "   " + "  ".join(NEEDED)
    for line in found:
        chances = "".join(f"{line.probability[n]:>7.0%}" for n in grid)
        beyond = f"> {grid[-1]}"
        counts = ((line.pairs_90, beyond), (line.pairs_median, beyond), (line.pairs_least, "never"))
        cells = (
            str(n if isinstance(n, int) else other).rjust(len(head))
            for (n, other), head in zip(counts, NEEDED, strict=True)
        )
        yield f"{line.claim:<{width}}{chances}   {'  '.join(cells)}"
    yield "pairs, 90 % and 50 %: by then this share of the simulated runs has shown it"
    yield "pairs, best case: with fewer, not even data that all speak for it can show it; no number to plan with"


def _claims(wanted: Sequence[str] | None) -> Any:
    from harness.stats.power import CLAIMS

    for name in wanted or ():
        if name not in CLAIMS:
            hint = did_you_mean(name, CLAIMS)
            raise ConfigError(f"--claim is {name!r}", allowed=", ".join(CLAIMS), hint=hint)
    return tuple(name for name in CLAIMS if not wanted or name in wanted)


def _assumptions(prereg: Prereg, design: Design, truth: Truth) -> Iterator[str]:
    rates = sum(c.rate for c in design.kill.classes)
    budget, reference = prereg.design.token_budget_per_trial, prereg.design.token_reference_per_trial
    yield f"registration: {prereg.id}, at most {design.kill.pairs_max} pairs"
    yield (
        f"assumed, {truth.clustering} clustering: {truth.duplicates:.2%} of effects duplicated per trial with forced "
        f"faults, which is {truth.duplicates * rates:.2%} in operation (threshold {design.tau_duplicates:.2%})"
    )
    yield (
        f"assumed: {truth.work * budget / prereg.design.faults_scheduled_per_trial:,.0f} tokens destroyed per fault, "
        f"{truth.work * budget / reference * rates:.2%} of a trial in operation "
        f"(threshold {prereg.thresholds.work_destroyed:.2%})"
    )
    yield f"assumed: treatment harm {truth.ratio:g} x control, {truth.lost:.2%} lost, {truth.discordant:.2%} discordant"
