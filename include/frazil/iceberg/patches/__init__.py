"""Patches of PyIceberg 0.12 in this process: each file fixes one thing, and says when it can be removed."""
