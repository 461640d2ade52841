"""Faults that tests order: links between brokers that carry nothing or little, disks that are slow or fail.

`links.py` are proxies and need no rights; `disk.py` loads a library into brokers and needs a C compiler.
Left to others: which broker is where (`testing/embedded.py`).
"""
