"""Toy targets and drafters without weights, and contract checks for drafters and targets of your own."""

from draftwood.testing.checks import check_drafter, check_target
from draftwood.testing.drafters import (
    DuplicatingDrafter,
    EmptyDrafter,
    HugeDrafter,
    InvalidDrafter,
    LyingDrafter,
    ModelDrafter,
    RaisingDrafter,
    RandomDrafter,
    SameDrafter,
    SlowDrafter,
    TopKDrafter,
    WindowDrafter,
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
    "RaisingDrafter",
    "RandomDrafter",
    "SameDrafter",
    "SlowDrafter",
    "TopKDrafter",
    "ToyTarget",
    "WindowDrafter",
    "WrongDrafter",
    "check_drafter",
    "check_target",
]
