"""`scaler_top`: what a cluster is doing, in a terminal.

    feed ─▶ Cluster ─▶ rows (sorted, filtered) ─▶ frame (lines of spans) ─▶ screen
                            ▲                        ▲
    keys ────────────────▶ View ─────────────────────┘

Rules:
- `view`, `rows`, `sections` and `frame` are pure: what is shown follows from a cluster, a view and a size. Only
  `screen` uses a terminal, only `top_program` a socket, a clock and signals.
- Names from peers pass through `text.safe` before they are measured or shown.
- Only visible rows are formatted; other rows have at most a sort key.
"""
