"""What a target, a rule, a drafter and a planner promise each other: Protocols, and the values they exchange.

A pass over a tree gives ``1 + len(tree)`` rows of scores: row 0 for the root (the last committed token), row
``1 + i`` for node ``i``. Positions count from 0 at the first token of the prompt.
"""

from draftwood.contracts.drafter import (
    BatchDrafter,
    Brancher,
    Drafter,
    DraftSession,
    DraftTexts,
    Feedback,
    Follower,
    KernelDrafter,
    ModelDrafter,
    Needs,
    Prices,
    PromptWatcher,
    Share,
    Takes,
    TextDrafter,
    TokenFile,
)
from draftwood.contracts.planner import Ask, Declaration, Plan, Planner, PlannerSession, State
from draftwood.contracts.rule import Ended, Noise, Processor, Rule, RuleSession, Sampling, Verdict
from draftwood.contracts.target import (
    Capabilities,
    Floats,
    GrowingTarget,
    Ints,
    Positions,
    Scores,
    Target,
    TargetSession,
    Watch,
)

__all__ = [
    "Ask",
    "BatchDrafter",
    "Brancher",
    "Capabilities",
    "Declaration",
    "DraftSession",
    "DraftTexts",
    "Drafter",
    "Ended",
    "Feedback",
    "Floats",
    "Follower",
    "GrowingTarget",
    "Ints",
    "KernelDrafter",
    "ModelDrafter",
    "Needs",
    "Noise",
    "Plan",
    "Planner",
    "PlannerSession",
    "Positions",
    "Prices",
    "Processor",
    "PromptWatcher",
    "Rule",
    "RuleSession",
    "Sampling",
    "Scores",
    "Share",
    "State",
    "Takes",
    "Target",
    "TargetSession",
    "TextDrafter",
    "TokenFile",
    "Verdict",
    "Watch",
]
