"""Maps that send their items as chunks: a list of results, or results that arrive one by one in bounded memory."""
