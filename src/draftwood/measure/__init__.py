"""Instruments: bench, compare, drift, explain, profile, report, simulate. Rates come from `rates`."""
