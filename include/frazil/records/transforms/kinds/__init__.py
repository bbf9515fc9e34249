"""The transforms and predicates that come with Frazil: each class is the whole of one. CONTRIBUTING.md says how to add one."""
