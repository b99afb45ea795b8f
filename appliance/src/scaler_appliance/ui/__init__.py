"""`scaler_ui`: the cluster in a browser, as metrics, and as JSON.

    status stream ─▶ feed.Feed ─▶ UiState ─▶ one body a page: f(state, query) ─▶ browsers (events), JSON (api)
                                          └────▶ metrics, health

Rules:
- The scheduler is only listened to. The one exception is an action that an operator asks for, where that is allowed.
- What a page shows is a pure function of the state and the query: sorted, filtered and cut here, so that a browser gets
  what it shows however large the cluster is. A page without viewers costs nothing.
- Everything that is kept is bounded; a browser that reads slowly gets fewer events.
- Names, texts and failures come from peers that are not trusted: they are data, here and in the page.
"""
