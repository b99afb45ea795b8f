"""Actors in a worker: their processors, and the way of their calls.

worker_actors   which actors there are, and the calls that wait for their processor
call_flow       what happens to calls
"""
