"""What people who work on lakemirror run: real lakes, a real Airflow, the demo. Not part of the product."""
