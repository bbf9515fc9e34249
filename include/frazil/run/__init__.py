"""Drives a batch: plan, stage, audit, decide, roll forward. Decisions are in `frazil.batch`, deeds at the edges."""
