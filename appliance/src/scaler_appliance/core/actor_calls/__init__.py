"""Actors: instances that live in one processor of one worker, whose calls are tasks.

actor_table       which actors there are, and where
waiting_actors    those whose calls can go nowhere, by what they wait for
actor_placement   where a new actor goes, and when its calls follow
"""
