# Lakemirror on the official Airflow image: the DAGs, the library, the Spark jobs and a Java 17 runtime.
# Linted in every `make lint`; not built there, since that needs a Docker engine.
FROM eclipse-temurin:17.0.15_6-jre-noble AS java

# The walker of manifests in C, by the same script as `make setup`. The Airflow image has no compiler; this one has, with
# the same Python and an older or equal libc. Where the walker does not load after all, the one in Python serves.
FROM python:3.11.13-bookworm AS walker
WORKDIR /build
COPY scripts/build_walker.py scripts/build_walker.py
COPY plugins/lakemirror/formats/iceberg/native plugins/lakemirror/formats/iceberg/native
RUN python -I scripts/build_walker.py --must

FROM apache/airflow:3.3.2-python3.11

COPY --from=java /opt/java/openjdk /opt/java/openjdk
ENV JAVA_HOME=/opt/java/openjdk \
    PATH="/opt/java/openjdk/bin:${PATH}" \
    PYSPARK_PYTHON=/home/airflow/.local/bin/python \
    LAKEMIRROR_CONFIG=/opt/airflow/include/config/lakemirror.yaml

WORKDIR /opt/airflow

# The steps of `make setup`, without the development tools. The library's first file is enough for the editable install,
# so that a change of code does not install everything again. bin/lakemirror looks for its Python in .venv.
COPY --chown=airflow:0 requirements.in requirements.txt pyproject.toml LICENSE ./
COPY --chown=airflow:0 scripts/setup.sh scripts/setup.sh
COPY --chown=airflow:0 plugins/lakemirror/__init__.py plugins/lakemirror/__init__.py
RUN PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1 scripts/setup.sh --into /home/airflow/.local/bin/python \
    && ln -s /home/airflow/.local .venv

COPY --chown=airflow:0 plugins plugins
COPY --from=walker --chown=airflow:0 /build/plugins/lakemirror/formats/iceberg/_walk.*.so plugins/lakemirror/formats/iceberg/
COPY --chown=airflow:0 dags dags
COPY --chown=airflow:0 spark_jobs spark_jobs
COPY --chown=airflow:0 include include
COPY --chown=airflow:0 bin bin
