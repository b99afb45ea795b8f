"""`scaler_top`: what a cluster is doing, in a terminal.

    feed ─▶ Cluster ─▶ rows (sorted, filtered) ─▶ frame (lines of spans) ─▶ screen
                            ▲                        ▲
    keys ────────────────▶ View ─────────────────────┘

Rules:
- `view`, `rows`, `sections` and `frame` compute and do nothing else: what is shown follows from a cluster, a view and a
  size. Only `screen` knows a terminal, only `program` a socket, a clock and signals.
- Whatever a peer calls itself goes through `text.safe` before it is measured or shown.
- Formatting is for what is visible; of the rest, there is at most a sort key.
"""
