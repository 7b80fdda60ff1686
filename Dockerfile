# syntax=docker/dockerfile:1
# The service in a container, as a user without rights, its root file system read-only if you like.
#
#   docker build -t liverank .                                  the cpu backend
#   docker build -t liverank:cuda --build-arg EXTRAS=[server,cuda13,telemetry] . with CuPy and the CUDA libraries it needs
#   docker run --rm -p 127.0.0.1:8080:8080 -v liverank:/data -v liverank-keys:/keys liverank
#
# The first start makes an API key, in /keys/operator; with -e LIVERANK_API_KEY=… that one is used instead.
#
# BASE is any image with Python 3.11 or later, its venv module and pip. To build the same image again, give it with
# its digest: --build-arg BASE=python:3.12-slim-bookworm@sha256:…
ARG BASE=python:3.12-slim-bookworm

FROM ${BASE} AS build
ARG EXTRAS="[server,telemetry]"
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY gpu gpu
COPY liverank liverank
COPY service service
# Without pip and the tests of packages. Bytecode is compiled once the times of sources, of which an image keeps whole
# seconds, are final. The kernels of the CPU are compiled here, for old and new processors: by a C++ compiler of BASE if
# it has one, else by ziglang, which pip fetches for the build alone.
RUN case "$(uname -m)" in x86_64) export LIVERANK_LEVELS="2 3" ;; esac \
    && python3 -m venv --without-pip /opt/liverank \
    && python3 -m pip --python /opt/liverank/bin/python install --no-cache-dir --no-compile ".${EXTRAS}" \
    && find /opt/liverank/lib/python3*/site-packages -mindepth 2 -type d \( -name tests -o -name test \) -prune \
        -exec rm -rf {} + \
    && find /opt/liverank/lib/python3*/site-packages -name '*.py' -exec touch -d @1700000000 {} + \
    && /opt/liverank/bin/python -m compileall -q /opt/liverank/lib/python3*/site-packages
# The CUDA kernels are compiled without a device, for devices of compute capability 8.x, 9.x, 10.x and 12.x, so that a
# fresh container is ready in seconds.
WORKDIR /
RUN case "${EXTRAS}" in *cuda*) \
        /opt/liverank/bin/python -m liverank_gpu.backends.cuda.kernels sm_80 sm_90 sm_100 sm_120 ;; \
    esac

FROM ${BASE}
RUN groupadd --gid 10001 liverank \
    && useradd --uid 10001 --gid liverank --no-create-home --home-dir /data liverank \
    && install -d -o liverank -g liverank -m 0700 /data \
    && install -d -o liverank -g liverank -m 0755 /keys
COPY --from=build /opt/liverank /opt/liverank
COPY docker/entrypoint /usr/local/bin/entrypoint
ENV PATH=/opt/liverank/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    LIVERANK_DATA=/data \
    LIVERANK_HOST=0.0.0.0 \
    LIVERANK_PORT=8080
USER 10001:10001
VOLUME ["/data", "/keys"]
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['LIVERANK_PORT'] + '/readyz', timeout=2)"]
ENTRYPOINT ["entrypoint"]
CMD ["serve"]
