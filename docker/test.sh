#!/bin/sh
# Builds the image and tests it, with podman (or docker, from ENGINE). Ends with the first promise that is broken.
#
#   docker/test.sh                                            builds with `ENGINE build`
#   IMAGE=liverank docker/test.sh                             tests an image that is there
#   BUILD='buildah bud --isolation chroot --network host --format docker --build-arg BASE=…' docker/test.sh
set -eu
cd "$(dirname "$0")/.."
engine=${ENGINE:-$(command -v podman || command -v docker)}
image=${IMAGE:-liverank-test}
name=liverank-test-$$
volumes="$name-data $name-keys"
port=${PORT:-18080}
url=http://127.0.0.1:$port

step() { printf '\n%s\n' "$*"; }
fail() { echo "FAILED: $*" >&2; "$engine" logs "$name" >&2 || :; exit 1; }
clean() {
    "$engine" rm -f "$name" >/dev/null 2>&1 || :
    # shellcheck disable=SC2086
    "$engine" volume rm -f $volumes >/dev/null 2>&1 || :
}
trap clean EXIT
trap 'exit 1' INT TERM

start() { # options of `run`
    "$engine" run -d --name "$name" --read-only --tmpfs /tmp --cap-drop all --security-opt no-new-privileges \
        --pids-limit 1024 --memory 2g -p "127.0.0.1:$port:8080" -e LIVERANK_LOG_FORMAT=json \
        -v "$name-data:/data" -v "$name-keys:/keys" "$@" "$image" >/dev/null
}
ready() {
    for _ in $(seq 240); do
        curl -fs "$url/readyz" >/dev/null 2>&1 && return
        [ "$("$engine" inspect -f '{{.State.Running}}' "$name")" = true ] || fail "it has ended"
        sleep 0.5
    done
    fail "it is not ready after two minutes"
}
remove() { "$engine" rm -f "$name" >/dev/null; }
in_it() { "$engine" exec "$name" "$@"; }
key() { in_it cat "/keys/$1"; }
ask() { curl -fs -H "Authorization: Bearer $(key operator)" "$@"; }
seconds() { date +%s; }

if [ -z "${IMAGE:-}" ]; then
    step "The image is built"
    ${BUILD:-$engine build} -t "$image" .
fi

step "It has no pip, no tests of packages, one file of bytecode for each source, and a user without rights"
inside() { "$engine" run --rm --entrypoint sh "$image" -c "$1"; }
[ "$(inside 'id -u; id -g' | tr '\n' ' ')" = "10001 10001 " ] || fail "the user"
[ -z "$(inside 'find /opt/liverank -name "pip" -o -mindepth 6 -type d -name tests')" ] || fail "pip or tests"
inside '! find /opt/liverank -name "*.pyc" -path "*/__pycache__/*" | sed "s/\.cpython.*//" | sort | uniq -d | grep .' \
    || fail "bytecode twice"

step "It is ready, read-only and without capabilities, and makes its keys"
start
ready
ask -X POST "$url/graphs/default/batches" -H 'Content-Type: application/json' -d '{"insert": [["a", "b"]]}' >/dev/null \
    || fail "a batch with the operator's key"
curl -fs -H "Authorization: Bearer $(key prometheus)" "$url/metrics" >/dev/null || fail "metrics with Prometheus' key"
[ "$(curl -s -o /dev/null -w '%{http_code}' "$url/graphs")" = 401 ] || fail "a request without a key"
[ "$(in_it stat -c %a /keys/operator /keys/prometheus | tr '\n' ' ')" = "600 644 " ] || fail "the modes of the keys"

step "Its health check succeeds"
health=$("$engine" inspect -f '{{json .Config.Healthcheck}}' "$name")
case $health in *readyz*) ;; *) fail "there is no health check: $health" ;; esac
in_it python3 -c "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/readyz')" || fail "the health check"

step "Every line of its log is JSON"
"$engine" logs "$name" 2>&1 | python3 -c 'import json, sys; [json.loads(line) for line in sys.stdin]' || fail "a plain line"

step "It stops in order while a reader waits"
ask "$url/graphs/default/top?min_version=999999&timeout=120" >/dev/null 2>&1 &
sleep 1
began=$(seconds)
"$engine" stop -t 60 "$name" >/dev/null
[ $(($(seconds) - began)) -lt 10 ] || fail "it took $(($(seconds) - began)) s"
status=$("$engine" inspect -f '{{.State.ExitCode}}' "$name")
case $status in 0 | 143) ;; *) fail "it ended with $status" ;; esac

step "Killed, it comes back with its data and its keys"
remove
start
ready
operator=$(key operator)
ask -X POST "$url/graphs/default/batches" -H 'Content-Type: application/json' -d '{"insert": [["b", "a"]]}' >/dev/null
"$engine" kill "$name" >/dev/null
remove
start
ready
[ "$(key operator)" = "$operator" ] || fail "another key"
ask "$url/graphs/default/top?min_version=2" | grep -q '"version":2' || fail "a batch is lost"

step "It has the kernels of the CPU for old and new processors, and needs no compiler"
inside '[ "$(uname -m)" != x86_64 ] || ls /opt/liverank/lib/python3*/site-packages/liverank_gpu/native/_kernels_v2.abi3.so \
    /opt/liverank/lib/python3*/site-packages/liverank_gpu/native/_kernels_v3.abi3.so' >/dev/null || fail "kernels are missing"
[ -z "$(inside 'find /opt/liverank -name "ziglang*"')" ] || fail "a compiler"

step "Prometheus gets a key again after it was lost, and with a key from the environment"
in_it rm /keys/prometheus
remove
start -e LIVERANK_API_KEY="$(seq -s - 40 | head -c 40)"
ready
curl -fs -H "Authorization: Bearer $(key prometheus)" "$url/metrics" >/dev/null || fail "metrics with Prometheus' key"

step "SIGTERM at any moment of a start ends it"
for delay in 0 0.1 0.3 0.6 1 2; do
    remove
    start
    sleep "$delay"
    began=$(seconds)
    "$engine" stop -t 60 "$name" >/dev/null
    [ $(($(seconds) - began)) -lt 30 ] || fail "$delay s after the start: it took $(($(seconds) - began)) s"
done

step "With data that cannot be written it says so, and the keys stay"
remove
if "$engine" run --name "$name" --read-only --tmpfs /tmp --cap-drop all -v "$name-data:/data:ro" -v "$name-keys:/keys" \
    "$image" >/dev/null 2>&1; then
    fail "it started"
fi
"$engine" logs "$name" 2>&1 | tail -n 1 | grep -q '/data' || fail "the reason is not named"
remove
start
ready
[ "$(key operator)" = "$operator" ] || fail "another key"

step "An empty LIVERANK_DATA is a clear error"
"$engine" run --rm -e LIVERANK_DATA= "$image" 2>&1 | grep -q "LIVERANK_DATA: '' must be the path of a directory" \
    || fail "no clear error"

step "All promises hold"
