"""The state and decisions of a client: tasks, objects, queries and credit. No thread, lock, socket, file or clock."""
