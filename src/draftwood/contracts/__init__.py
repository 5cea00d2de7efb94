"""What a target, a rule, a drafter and a planner promise each other: base classes, and the values they exchange.

A pass over a tree gives ``1 + len(tree)`` rows of scores: row 0 for the root (the last committed token), row
``1 + i`` for node ``i``. Positions count from 0 at the first token of the prompt.
"""

from draftwood.contracts.drafter import (
    Drafter,
    DraftSession,
    DraftTexts,
    Feedback,
    Needs,
    Prices,
    SavedReading,
    Share,
    Takes,
    TokenFile,
)
from draftwood.contracts.planner import Ask, Declaration, Plan, Planner, PlannerSession, State
from draftwood.contracts.rule import Ended, Noise, Processor, Rule, RuleSession, Sampling, Verdict
from draftwood.contracts.target import (
    Capabilities,
    Floats,
    Ints,
    Positions,
    Prefix,
    Scores,
    Target,
    TargetSession,
    Watch,
)

__all__ = [
    "Ask",
    "Capabilities",
    "Declaration",
    "DraftSession",
    "DraftTexts",
    "Drafter",
    "Ended",
    "Feedback",
    "Floats",
    "Ints",
    "Needs",
    "Noise",
    "Plan",
    "Planner",
    "PlannerSession",
    "Positions",
    "Prefix",
    "Prices",
    "Processor",
    "Rule",
    "RuleSession",
    "Sampling",
    "SavedReading",
    "Scores",
    "Share",
    "State",
    "Takes",
    "Target",
    "TargetSession",
    "TokenFile",
    "Verdict",
    "Watch",
]
