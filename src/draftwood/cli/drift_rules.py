"""``draftwood drift --rule``: the texts of lossy rules beside plain decoding's, as a table and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftwood.cli import screen
from draftwood.cli.screen import number, percent
from draftwood.errors import UsageError
from draftwood.measure.records.provenance import provenance

if TYPE_CHECKING:
    from draftwood.measure.prompt_files import Job
    from draftwood.measure.rule_drift import RuleDrift

TARGET = 0.03
"""Largest increase of perplexity that source document 2 allows its threshold rule."""


def rules_of(rules: Sequence[str] | None, taus: str | None) -> list[str]:
    """Return the rules that the flags name, each once; `UsageError` for wrong ones."""
    from draftwood.verify.load import label, load

    given = [*(rules or ()), *(f"threshold:tau={tau.strip()}" for tau in taus.split(","))] if taus else rules or ()
    return list(dict.fromkeys(label(load(rule)) for rule in given))


@dataclass(slots=True)
class RuleRun:
    """The comparison under way; the prompts that were finished survive an interrupt."""

    model: str
    dtype: str
    drafters: str
    planner: str
    rules: list[str]
    jobs: list[Job] = field(default_factory=list)  # finished ones
    found: list[RuleDrift] = field(default_factory=list)

    def measure(self, model: Any, jobs: Sequence[Job], settings: dict[str, Any]) -> None:
        from draftwood.measure.rule_drift import empty, rule_drift

        self.found = empty(self.rules)
        for count, job in enumerate(jobs, 1):
            with screen.busy(f"{job.task} {job.name} ({count} of {len(jobs)})"):
                rule_drift(model, job.prompt, self.rules, self.found, **(job.sampling | settings))
            self.jobs.append(job)

    def document(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        named = {name: getattr(self, name) for name in ("model", "dtype", "drafters", "planner")}
        prompts = [{"task": job.task, "name": job.name} for job in self.jobs]
        plain = [side.ids for side in self.found[0].plain] if self.found else []
        rules = [one.to_json() for one in self.found]
        return {**named, "prompts": prompts, "plain_ids": plain, "rules": rules, "provenance": provenance()}

    def show(self) -> None:
        """Print the table and what it means."""
        if not self.jobs:
            return
        to = screen.console()
        to.print(
            f"{self.model}, {self.dtype}: drafted decoding ({self.drafters}, {self.planner}) by each rule, and "
            f"plain decoding, on {len(self.jobs)} prompt{'s' if len(self.jobs) > 1 else ''}"
        )
        table = screen.table(
            "\nrule", "texts\nchanged", "tokens until\nthen", "KL\nmean", "perplexity\nplain", "\nrule",
            "\nchange", "tokens\nper pass", "\nspeedup", rows=map(_cells, self.found),
        )  # fmt: skip
        to.print(table, soft_wrap=False)
        to.print()
        if lossy := [one.rule for one in self.found if one.lossy]:
            to.print(f"lossy: {', '.join(lossy)}. Their texts may differ from those of plain decoding.")
        to.print(
            "KL: of the model's distributions after as many tokens of plain decoding's text and of the rule's, "
            f"in nats. Perplexity: of each text under the model; *: a rise of at most {TARGET}. Speedup: plain "
            "seconds per token over the rule's, each text written once."
        )


def _cells(one: RuleDrift) -> list[str]:
    change = one.perplexity_change
    risen = "" if change is None else f"{change:+.4f}" + ("*" if change <= TARGET else "")
    return [
        one.rule, percent(one.changed), percent(one.same_tokens), f"{one.kl_mean:.1e}",
        number(one.perplexity_plain, 4), number(one.perplexity, 4), risen, number(one.tokens_per_pass),
        number(one.speedup),
    ]  # fmt: skip


def save_picture(found: Sequence[RuleDrift], path: Path, title: str) -> None:
    """Write speedup over perplexity change, a point per rule.

    Raises `UsageError` if matplotlib is missing or does not know the ending, `RecordError` if writing fails.
    """
    from draftwood.measure.profile.plot import picture

    known = [one for one in found if one.speedup is not None and one.perplexity_change is not None]
    if not known:
        raise UsageError("there is nothing to draw: no text took a pass beyond reading the prompt")

    def draw(axes: Any) -> None:
        axes.plot([o.perplexity_change for o in known], [o.speedup for o in known], "o", color="#0c8ae5")
        for one in known:
            axes.annotate(
                one.rule,
                (one.perplexity_change, one.speedup),
                xytext=(5, 4),
                textcoords="offset points",
                fontsize=8,
            )
        axes.axvline(TARGET, color="#d66705", linewidth=1, linestyle="--")
        axes.set_xlabel(f"change of perplexity under the model (dashed: {TARGET})")
        axes.set_ylabel("times as fast as plain decoding, per token")
        axes.set_title(title, fontsize=10, loc="left")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)

    picture(path, draw)
