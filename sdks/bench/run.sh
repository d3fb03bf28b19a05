#!/usr/bin/env bash
# What a lock costs one program of each language: this library, and that language's usual clients of etcd and Redis.
#
#     cargo build --profile dist && sdks/bench/run.sh            # or only some: sdks/bench/run.sh go java
#
# One client takes and gives back a lock that no other client wants. The services take turns (TURNS, by default 7, of
# OPERATIONS, by default 400); each figure is the median of the turns. All languages meet the same servers, which
# servers.py starts and describes. What the programs need is installed into target/sdk-bench. HOLDFAST_BIN names another
# build of Holdfast than target/dist/holdfast.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
installed=$root/target/sdk-bench
languages=("$@")
if [ ${#languages[@]} = 0 ]; then languages=(python go typescript java); fi

install_python() {
    [ -x "$installed/python/bin/python" ] || python3 -m venv "$installed/python"
    "$installed/python/bin/pip" install --quiet --disable-pip-version-check \
        "$root/sdks/python" 'etcd3==0.12.0' 'protobuf<3.21' 'redis==6.4.0'
}
run_python() { "$installed/python/bin/python" "$root/sdks/python/bench/compare.py"; }

install_go() { (cd "$root/sdks/go/bench" && go build -buildvcs=false -o "$installed/go" .); }
run_go() { "$installed/go"; }

install_typescript() {
    mkdir -p "$installed/typescript"
    (cd "$installed/typescript" && npm install --silent --no-audit --no-fund --install-links \
        "$root/sdks/typescript" etcd3@1.1.2 redlock@5.0.0-beta.2 ioredis@5.4.1)
    cp "$root/sdks/typescript/bench/compare.mjs" "$installed/typescript/"
}
run_typescript() { (cd "$installed/typescript" && node compare.mjs); }

install_java() {
    mvn --quiet --batch-mode -f "$root/sdks/java" install -pl holdfast-client -am -DskipTests -Dspotless.check.skip
    mvn --quiet --batch-mode -f "$root/sdks/java/bench" package -Dspotless.check.skip
}
run_java() { java -cp "$root/sdks/java/bench/target/classes:$root/sdks/java/bench/target/lib/*" holdfast.bench.Compare; }

if [ "${HOLDFAST_ENDPOINTS:-}" = "" ] || [ "${ETCD_ENDPOINT:-}" = "" ]; then
    holdfast=${HOLDFAST_BIN:-$root/target/dist/holdfast}
    if [ ! -x "$holdfast" ]; then
        echo "bench: there is no $holdfast; run \`cargo build --profile dist\`, or set HOLDFAST_BIN" >&2
        exit 1
    fi
    for language in "${languages[@]}"; do
        echo "bench: installing what $language needs" >&2
        "install_$language"
    done
    exec python3 "$here/servers.py" --holdfast "$holdfast" -- \
        "${BASH_SOURCE[0]}" "${languages[@]}"
fi

echo "$(nproc) cores; $(etcd --version | head -n 1); $(redis-server --version | cut -d ' ' -f 1-3)"
for language in "${languages[@]}"; do
    printf '\n## %s\n\n' "$language"
    "run_$language"
    echo
    echo "load of the machine (1, 5 and 15 minutes): $(cut -d ' ' -f 1-3 /proc/loadavg)"
done
