"""Long-lived state in the cluster: `client.actor(Class, ...)`.

actor_function   in a processor: holds the instance, and calls its methods
actor_handle     in a client: its calls are tasks
"""
