"""Who decides how much is drafted and checked: budgets, policies, beliefs.

The numbers, by module; those of ``planning`` itself are shared.

* planning             MOST: most draft nodes of one request
* planning             SELDOM: of calm passes and steps, only each fourth is learnt from
* planning             SHORTEST, LONGEST: seconds that a step can take; other clocks are broken
* planning             KEEP_LONG, KEEP_SOME, KEEP_LATELY: weight of earlier steps in running averages
* accounts             _KEEP: the same, in accounts of what is skipped
* accounts             NOTICEABLE: share of a plain pass that a drafter may always take
* accounts             BLOCK, _FIRST_BLOCKS, _MOST_BLOCKS, _KEEP_BLOCK: steps and blocks of an A/B test
* accounts             _IN_VAIN, _LONGEST_QUIET: how much and how seldom is asked in vain
* accounts             _BURST, _STALL, _STALL_PASSES: most that one step counts in an account
* accounts             _WORTH, _FREE_LOSS, _RAISE: what a draft must promise, more after losses
* base                 _CHAIN_OF: nodes asked per node of a chain
* base                 _TOGETHER: passes whose labels are learnt at once
* beliefs              WEIGHT, LIGHT, WRONG: labels a prior counts as; fewer when it is wrong
* beliefs              RATE, FADE, _LIMIT: how a label moves the drift, and its bound
* beliefs              _SETTLED: passes after which rates move slowly
* cost_curve, learned  FORMAT: format numbers of the files
* cost_curve           _WIDEST: tokens of the widest pass
* cost_model           _OCTAVES: knots, at 1, 2, 4, .. 1024 tokens
* cost_model           _PACE, _SHAPE, _GUESSED_PACE, _GUESSED_SHAPE: how far a curve may be off
* cost_model           _PACE_DRIFT, _SHAPE_DRIFT, _FORGET: how that grows per pass
* cost_model           _NOISE, _MOST_NOISE: how far one pass may be off
* cost_model           _CLIP: standard deviations at which a pass is an outlier
* cost_model           _UNNOTICED: change of a cost that leaves the table
* cost_model           _STALE, _SETTLED: passes until a width, or the machine, is measured again
* cost_model           GRANT, _EXPLORE, _MOST_SAVED: plain passes that exploring may take
* cost_model           _SLACK, _MOST_LOG: bounds of kept costs that are believed
* goodput              _MOST_LOOKAHEAD: lookahead nodes of one drafter in a pass
* goodput              _FEW: requests whose texts are looked at for repeats
* goodput              _LEAST, _SHRINK, _SPARE: how many draft nodes are asked for
* goodput              _SOON: first steps that are all judged; unasked steps per judged one
* goodput              _SHOWN: alternatives that a trace shows
* learned, switching   _MOST_RATES, _MOST_SETS: drafters, and sets of them, that are remembered
* pace                 _FIRST_TOKENS, _FIRST_PASSES: what a text is assumed to have taken at first
* pace                 _AHEAD: draft nodes that give the price of one
* switch_cost          _MOST: plain passes that a change of width may take
* repeats              SIZE, _MOST, _BITS, _RUN: tokens of a repeat, and how they are looked up
* turns                TURN, _FIRST, _BONUS, _LEAST, _CAP: turns and exploration of discounted UCB
* deadline             _WINDOW, _LATE, _EASY, _PATIENCE: steps, late share, spare time, retries
* sensors              _FROZEN, _SHARE, _PAUSE, _OLD: seconds that a sensor may take and count
* sensors              _LOWEST, _HIGHEST: degrees that a sensor can mean
"""

MOST = 64
SELDOM = 4
SHORTEST, LONGEST = 1e-6, 3600.0
KEEP_LONG, KEEP_SOME, KEEP_LATELY = 0.998, 0.97, 0.95
