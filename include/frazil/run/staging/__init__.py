"""Staging: records become data files that no snapshot names yet. Derives decoders from the pipeline file; holds the code that all
engines run.
"""
