"""Captures: lines of files and rows of databases become records of a topic, each once.

Every transaction holds records and, in another topic, the position after them. So consumers of committed records see each
line once, even if a run is killed or two run at once, and the next run continues after the last line.
"""
