"""Test suites of other people, run from a checkout outside the repository, on Strandline and on Kafka 3.9.

What a suite needs of its cluster is in `python_suites.py`, `sarama.py` and `librdkafka.py`, how a cluster of
that shape is started in `shape.py`, how a Python suite is run in `running.py`, which release a checkout is of
in `checkout.py`, what does not pass and why in `reasons/`, the table in `page.py`. Nothing of their code is
here. Run `python -m tests.suites NAME --checkout PATH`.
"""
