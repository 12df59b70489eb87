"""Where clients run: on this machine (`here`), or on machines of their own (`flower`). Nothing is imported here: a
client that only waits for a job needs no torch.

Results do not depend on where: every client draws from its own streams and, on a CPU, computes on one thread.
"""
