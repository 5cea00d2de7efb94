"""What records hold, told step by step in a terminal and on one page: who wrote what, why, and how fast."""
