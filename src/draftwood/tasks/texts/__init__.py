"""The texts of the workloads, written for this project; places, products and people in them are invented.

In halves, so that no file grows too long: the first twelve of a kind never change, since recorded measurements
refer to them by name.
"""
