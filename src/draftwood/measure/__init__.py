"""Instruments: bench, compare, drift, explain, probe, profile, report, simulate. Rates come from `rates`."""
