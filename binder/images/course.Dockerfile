# syntax=docker/dockerfile:1.7
# The pod in which instructors grade (binder/hub/course.yaml): the CPU image, the graders, and every solution. Never for students;
# its registry is private. From the repository's root, after the CPU image:
#
#   docker build -f binder/images/course.Dockerfile --build-arg STUDENT=REGISTRY/mlsys-labkit-cpu:0.2.0 -t REGISTRY/mlsys-labkit-course:0.2.0 .
ARG STUDENT=mlsys-labkit-cpu:0.2.0
FROM ${STUDENT}
LABEL org.opencontainers.image.title="mlsys-labkit, course" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0"

USER root
COPY pyproject.toml constraints.txt README.md LICENSE LICENSE-text /opt/mlsys/
COPY mlsys_labkit /opt/mlsys/mlsys_labkit
COPY grading /opt/mlsys/grading
COPY solutions /opt/mlsys/solutions
COPY binder/hub/singleuser /opt/mlsys/jupyter
RUN --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    grep -v '^jupyterhub==' /opt/mlsys/constraints.txt > /tmp/pins \
    && HOME=/root pip install -q -c /tmp/pins /opt/mlsys /opt/mlsys/grading \
    && cd /opt/mlsys && labkit build \
    && echo 'mlsys:x:99999:100::/srv/course:/bin/bash' >> /etc/passwd \
    && rm /tmp/pins
ENV JUPYTER_CONFIG_PATH=/opt/mlsys/jupyter/course:/opt/mlsys/jupyter HOME=/srv/course
USER 99999:100
WORKDIR /srv/course
