"""Another width is tried now and then, also where its cost was learnt while the machine was busy."""

from __future__ import annotations

from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.cost_model import CostModel
from draftwood.planning.exploring import explored


def test_costs_of_a_busy_hour_are_found_out():
    model = CostModel(CostCurve.of({1: 0.06, 2: 0.07, 16: 0.1}))
    for _ in range(200):
        model.learn(2, 64, 3.0)
        model.learn(1, 64, 0.06)
    assert model.seconds(2, 64) > 20 * model.seconds(1, 64)
    for passes in range(3000):  # noqa: B007 - read behind the loop
        times = model.times(1, 3, 64)
        count = explored(
            model, 1, [1.0, 1.9, 2.7], times, max(range(3), key=lambda n: (1, 1.9, 2.7)[n] / times[n])
        )
        model.learn(1 + count, 64, (0.06, 0.07, 0.075)[count])
        if model.seconds(3, 64) < 0.09:
            break
    assert passes < 1500
