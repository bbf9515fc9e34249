"""How pipelines are doing: read once, judged by one rule, shown by page, terminal, metrics and alerts alike."""
