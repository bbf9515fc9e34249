"""Captures: lines of files and rows of databases become records of a topic, each once.

Every transaction holds records and, in another topic, the position behind them. So whatever is killed, and whoever else
runs: a reader of committed records sees each line once, and the next run goes on behind the last one.
"""
