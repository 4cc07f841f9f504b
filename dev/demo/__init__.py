"""`make demo`: a small lake, a real Airflow and Spark, and a table that shows source and mirror side by side."""
