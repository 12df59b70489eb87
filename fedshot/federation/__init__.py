"""A federation over real machines: clients with data of their own, one order out, one upload back, the same record.

Nothing in here knows how messages travel. `site` and `labour` are the client's side; `order`, `desk`, `collect` and
`conduct` are the server's; both speak in `messages` over a `transport`. The only transport over a network is Flower
(`fedshot/engines/flower.py`).
"""
