"""What a client knows and decides: tasks, objects, questions and credit. No thread, lock, socket, file or clock."""
