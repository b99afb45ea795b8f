"""The pages: each a function of the state and the query.

Rule: nothing here depends on HTTP.
"""
