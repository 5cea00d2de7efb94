"""Random stories about random tiny models: sequences of calls, each text checked. ``make fuzz N=2000 SEED=0``."""
