"""Who decides how much is drafted and checked: budgets, policies, beliefs."""
