"""Forms from a JSON Schema: which fields there are, and what somebody has changed in them."""
