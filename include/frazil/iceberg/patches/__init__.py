"""Where PyIceberg 0.12 falls short: each file mends one thing, in this process, and says when it can go."""
