# The image that docs/cluster/rayjob.yaml names: docker build --tag REGISTRY/fedbo:0.1.0 .
FROM python:3.11-slim AS wheel
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist /source

FROM python:3.11-slim
# KubeRay asks by wget whether Ray is well in a container.
RUN apt-get update && apt-get install --yes --no-install-recommends wget && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 ray && mkdir /srv/fedbo && chown ray /srv/fedbo
COPY constraints.txt /tmp/
COPY --from=wheel /dist /tmp/dist
# Compiled arithmetic is kept beside the package; on other kinds of processors it is compiled again.
RUN pip install --no-cache-dir --constraint /tmp/constraints.txt "ray[default]" /tmp/dist/*.whl \
    && python -m fedbo.execution.compiling \
    && rm -rf /tmp/dist
USER ray
WORKDIR /home/ray
