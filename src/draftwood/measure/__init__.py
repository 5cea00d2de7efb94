"""Instruments: comparisons and near-ties. Every figure that draftwood prints comes from here or from `rates`."""
