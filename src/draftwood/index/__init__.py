"""Kernels behind the drafters, compiled at the first use, each with its naive twin."""
