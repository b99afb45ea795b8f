"""What monitors receive: the status, in publications, through a socket of their own.

    core ──status──▶ StatusReporter ──publications──▶ StatusPublisher ──▶ monitors
                                                            └ Subscriptions: who gets what, and what is dropped

Rules: nothing here changes what the scheduler decides, except that it records runs while monitors want them.
"""
