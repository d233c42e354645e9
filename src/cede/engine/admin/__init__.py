"""What operators do to pools, policies, tenants and nodes."""
