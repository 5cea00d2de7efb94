"""Instruments: rates, comparisons, near-ties. Every figure that draftwood prints comes from here."""
