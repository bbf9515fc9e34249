"""The transforms and predicates that come with Frazil: each class is the whole of one. docs/extending.md says how to add one."""
