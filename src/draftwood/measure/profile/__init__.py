"""What a pass costs on this machine: measuring it, its rows, file and picture."""
