"""What leaves a client, what it tells about the client's data, and how less of it can be told.

`preview` lists it, `counts` withholds or noises class counts, `dpsgd` trains under differential privacy, `audit`
attacks an upload as a curious server would. Nothing is imported here: a command that needs none of it does not pay for
it.
"""
