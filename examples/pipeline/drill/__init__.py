"""`make pipeline`: runs the pipeline, kills a broker, a Spark worker and the driver, and judges it."""
