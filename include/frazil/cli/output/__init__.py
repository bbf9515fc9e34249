"""Where commands write, and what several of them take."""
