"""Actors: instances that live in one processor of one worker, whose calls are tasks.

actor_table       which actors there are, and where
actor_placement   where a new actor goes, and when its calls follow
"""
