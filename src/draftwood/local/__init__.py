"""This machine: its processor and memory, the models on its disk, what was found out about them."""
