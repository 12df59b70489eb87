"""How fast training is, here and now: `fedshot bench`.

Cases (`cases`) are measured (`suite`) with the package's own loop (`packaged`), with one as published code trains
(`published`) and with a plain one (`eager`); rows are kept and compared with earlier ones (`report`).
"""
