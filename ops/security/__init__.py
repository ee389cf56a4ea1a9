"""What operators do about security: users, access control lists, quotas, certificates."""
