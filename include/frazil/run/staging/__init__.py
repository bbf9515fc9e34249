"""Staging: records become data files that no snapshot names yet. Derives decoders from the pipeline file, and does the work
of every engine.
"""
