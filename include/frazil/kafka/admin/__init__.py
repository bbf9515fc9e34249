"""What a cluster says of topics, groups, permissions and logs."""
