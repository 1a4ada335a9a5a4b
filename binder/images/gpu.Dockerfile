# syntax=docker/dockerfile:1.7
# A student's server, with an NVIDIA GPU. Built from the tree that students get, which holds no solution:
#
#   labkit release ../student
#   docker build -f binder/images/gpu.Dockerfile --build-context images=binder/images -t REGISTRY/mlsys-labkit-gpu:0.2.0 ../student
# The wheels of torch and CUDA bring the libraries, NVRTC and the headers that the labs need; the driver comes from the node.
FROM nvidia/cuda:13.0.1-base-ubuntu24.04
LABEL org.opencontainers.image.title="mlsys-labkit, GPU" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0"

ENV VENV=/opt/venv PATH=/opt/venv/bin:$PATH LANG=C.UTF-8 SHELL=/bin/bash HOME=/home/jovyan
RUN --mount=type=bind,from=images,target=/images /images/install.sh system
RUN --mount=type=bind,from=images,target=/images /images/install.sh people
RUN --mount=type=bind,from=images,target=/images \
    --mount=type=bind,source=constraints.txt,target=/src/constraints.txt \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    HOME=/root /images/install.sh torch gpu
RUN --mount=type=bind,from=images,target=/images \
    --mount=type=bind,target=/src \
    --mount=type=cache,target=/root/.cache/pip \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    HOME=/root /images/install.sh kit gpu && /images/install.sh check
RUN --mount=type=bind,from=images,target=/images \
    --mount=type=bind,source=labs,target=/src/labs \
    /images/install.sh home
COPY --from=images --chmod=755 start.sh /usr/local/bin/

USER 1000:100
WORKDIR /home/jovyan
EXPOSE 8888
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ.get('JUPYTER_PORT', '8888') + os.environ.get('JUPYTERHUB_SERVICE_PREFIX', '/') + 'api', timeout=8)"]
ENTRYPOINT ["tini", "--", "start.sh"]
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser"]
