"""A toy target without weights, and contract checks for drafters and targets of your own."""

from draftwood.testing.checks import check_drafter, check_target
from draftwood.testing.targets import NumpyScores, ToyTarget

__all__ = ["NumpyScores", "ToyTarget", "check_drafter", "check_target"]
