"""Simulated programs that make, call and close actors, their own and those of others."""

from __future__ import annotations

from typing import Any

from simulation.actors import ActorWorld, Made
from simulation.peers import content_of

from scaler_protocol import messages as m


def use_actors(client: Any) -> None:
    """One step of a program with actors: makes one, closes one, or calls one, its own or another's."""
    actors: ActorWorld = client.world.actors
    for _ in range(actors.random.choice((1, 2, 4))):
        choice = actors.random.random()
        if choice < 0.2 or not actors.made:
            make_actor(client)
        elif choice < 0.25 and client.own_actors:
            close_actor(client, actors.random.choice(client.own_actors))
        else:
            made = actors.random.choice(actors.made[-8:])
            submit_calls(client, made, actors.random.choice((1, 1, 3, 15)))


def make_actor(client: Any) -> None:
    actors: ActorWorld = client.world.actors
    function = client.new_object_id()
    client.create(function, content_of(function), m.ObjectStorage.INLINE)
    options = m.TaskOptions(actor=True, priority=actors.random.choice((0, 0, 1)))
    need = actors.random.choice((None, None, None, 0.0, 1.0))
    if need is not None:
        options.capabilities = [m.Capability(name="gpu", amount=need)]
    made = Made(function, options)
    actors.made.append(made)
    client.own_actors.append(function)
    submit_calls(client, made, 1)


def submit_calls(client: Any, made: Made, wanted: int) -> None:
    count = client.may_submit(wanted)
    if count:
        client.submit(count, f"call {made.function}", made.options, made.function)


def close_actor(client: Any, function: int) -> None:
    client.own_actors.remove(function)
    client.delete(function)
