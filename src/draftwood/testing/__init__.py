"""Toys without weights and the contract checks: test your own drafter or target with what tests ours."""

from draftwood.testing.checks import check_drafter, check_target
from draftwood.testing.drafters import (
    DuplicatingDrafter,
    EmptyDrafter,
    HugeDrafter,
    InvalidDrafter,
    LyingDrafter,
    ModelDrafter,
    ProbingDrafter,
    RaisingDrafter,
    RandomDrafter,
    SameDrafter,
    SlowDrafter,
    TopKDrafter,
    WrongDrafter,
)
from draftwood.testing.targets import NumpyScores, ToyTarget

__all__ = [
    "DuplicatingDrafter",
    "EmptyDrafter",
    "HugeDrafter",
    "InvalidDrafter",
    "LyingDrafter",
    "ModelDrafter",
    "NumpyScores",
    "ProbingDrafter",
    "RaisingDrafter",
    "RandomDrafter",
    "SameDrafter",
    "SlowDrafter",
    "TopKDrafter",
    "ToyTarget",
    "WrongDrafter",
    "check_drafter",
    "check_target",
]
