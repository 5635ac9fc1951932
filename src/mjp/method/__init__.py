"""The method: plan → shuffle → model, as pure functions with thin modules around them."""
