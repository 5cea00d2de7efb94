"""How much is drafted and checked: budgets, policies, beliefs."""

MOST = 64  # draft nodes of one request, unless an option of the planner says otherwise
SELDOM = 4  # of steps that ask drafters, only each fourth is judged
SHORTEST, LONGEST = 1e-6, 3600.0  # seconds that a step can take; other clocks are broken
KEEP_LONG, KEEP_SOME, KEEP_LATELY = 0.998, 0.97, 0.95  # weight of earlier steps in running averages
