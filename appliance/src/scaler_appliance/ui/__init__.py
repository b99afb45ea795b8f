"""`scaler_ui`: the cluster in a browser, as metrics, and as JSON.

    status stream ─▶ feed.Feed ─▶ UiState ─▶ one body a page: f(state, query) ─▶ browsers (events), JSON (api)
                                          └────▶ metrics, health

Rules:
- It only listens to the scheduler. The only exception is an action that an operator requests, if actions are allowed.
- What a page shows is a pure function of the state and the query: it is sorted, filtered and cut here, so that a
  browser gets only what it shows however large the cluster is. A page without viewers costs nothing.
- All state is bounded; a browser that reads slowly gets fewer events.
- Names, texts and failures come from untrusted peers: they are data, here and in the page.
"""
