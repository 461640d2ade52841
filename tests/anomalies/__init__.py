"""Ten minutes of real processes whose histories are judged by strandline.testing.anomalies."""
