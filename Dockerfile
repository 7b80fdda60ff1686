# syntax=docker/dockerfile:1
# The service in a container, as a user without rights, its root file system read-only if you like.
#
#   docker build -t liverank .                                  the cpu backend
#   docker build -t liverank:cuda --build-arg EXTRAS=[server,cuda13] . with CuPy and the CUDA libraries it needs
#   docker run --rm -p 127.0.0.1:8080:8080 -v liverank:/data -v liverank-keys:/keys liverank
#
# The first start makes an API key, in /keys/operator; with -e LIVERANK_API_KEY=… that one is used instead.
#
# BASE is any image with Python 3.11 or later and its venv module.
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
ARG EXTRAS="[server]"
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY gpu gpu
COPY liverank liverank
COPY service service
RUN python3 -m venv /opt/liverank \
    && /opt/liverank/bin/pip install --no-cache-dir ".${EXTRAS}"
# Kernels are compiled here, so that a fresh container is ready in seconds on a machine with this one's kind of
# processor; on another kind they are compiled at its first start, as Numba's cache tells kinds apart. It also looks at
# the place of sources, which is not /source, and at their times, of which an image keeps whole seconds.
RUN cd / && find /opt/liverank/lib/python3*/site-packages/gpu /opt/liverank/lib/python3*/site-packages/service -name '*.py' \
        -exec sh -c 'for file; do touch -d "@$(stat -c %Y "$file")" "$file"; done' sh {} + \
    && NUMBA_CACHE_DIR=/opt/liverank/numba \
    /opt/liverank/bin/python -c "from service.catalog import warm_up, warm_up_keys; warm_up_keys(); warm_up('cpu')"

FROM ${BASE}
RUN groupadd --gid 10001 liverank \
    && useradd --uid 10001 --gid liverank --no-create-home --home-dir /data liverank \
    && install -d -o liverank -g liverank /data /keys
COPY --from=build /opt/liverank /opt/liverank
COPY docker/entrypoint /usr/local/bin/entrypoint
ENV PATH=/opt/liverank/bin:$PATH \
    LIVERANK_DATA=/data \
    LIVERANK_HOST=0.0.0.0 \
    LIVERANK_PORT=8080
USER liverank
VOLUME ["/data", "/keys"]
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['LIVERANK_PORT'] + '/readyz', timeout=2)"]
ENTRYPOINT ["entrypoint"]
CMD ["serve"]
