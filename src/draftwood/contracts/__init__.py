"""What a target, a rule, a drafter and a planner promise each other: base classes, and the values they exchange.

A pass over a tree gives ``1 + len(tree)`` rows of scores: row 0 for the root (the last committed token), row
``1 + i`` for node ``i``. Positions count from 0 at the first token of the prompt.
"""

from draftwood.contracts.drafter import Drafter as Drafter
from draftwood.contracts.drafter import DraftSession as DraftSession
from draftwood.contracts.drafter import DraftTexts as DraftTexts
from draftwood.contracts.drafter import Feedback as Feedback
from draftwood.contracts.drafter import Needs as Needs
from draftwood.contracts.drafter import Prices as Prices
from draftwood.contracts.drafter import SavedReading as SavedReading
from draftwood.contracts.drafter import Share as Share
from draftwood.contracts.drafter import Takes as Takes
from draftwood.contracts.drafter import TokenFile as TokenFile
from draftwood.contracts.planner import Ask as Ask
from draftwood.contracts.planner import Declaration as Declaration
from draftwood.contracts.planner import Plan as Plan
from draftwood.contracts.planner import Planner as Planner
from draftwood.contracts.planner import PlannerSession as PlannerSession
from draftwood.contracts.planner import State as State
from draftwood.contracts.rule import Ended as Ended
from draftwood.contracts.rule import Noise as Noise
from draftwood.contracts.rule import Processor as Processor
from draftwood.contracts.rule import Rule as Rule
from draftwood.contracts.rule import RuleSession as RuleSession
from draftwood.contracts.rule import Sampling as Sampling
from draftwood.contracts.rule import Verdict as Verdict
from draftwood.contracts.target import Capabilities as Capabilities
from draftwood.contracts.target import Floats as Floats
from draftwood.contracts.target import Ints as Ints
from draftwood.contracts.target import ModelFacts as ModelFacts
from draftwood.contracts.target import Positions as Positions
from draftwood.contracts.target import Prefix as Prefix
from draftwood.contracts.target import Scores as Scores
from draftwood.contracts.target import StoredForm as StoredForm
from draftwood.contracts.target import Target as Target
from draftwood.contracts.target import TargetSession as TargetSession
from draftwood.contracts.target import Watch as Watch
