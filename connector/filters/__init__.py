"""Row filters: exact conditions on rows, and what statistics prove about them."""
