"""One room per engine that can be a target."""
