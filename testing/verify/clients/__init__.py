"""The client processes of a run: each writes, copies or reads until SIGTERM, and notes every operation.

Left to others: starting and killing them (verify/fleet.py), judging what they noted (testing/anomalies/).
"""
