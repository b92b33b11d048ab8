#!/usr/bin/env bash
# Links a Java that Spark runs on (17 or 21) to the path given: that of JAVA_HOME, of PATH, or another installed one.
# Without any, root on Debian or Ubuntu gets one from the distribution; anyone else is told what to install.
set -euo pipefail
link=$1
jvms=${JVMS:-/usr/lib/jvm}

usable() {
    [ -x "$1/bin/java" ] && "$1/bin/java" -version 2>&1 | grep -qE 'version "(17|21)[."]'
}

find_java() {
    local java home
    java=$(command -v java || true)
    for home in "${JAVA_HOME:-}" "${java:+$(dirname "$(dirname "$(readlink -f "$java")")")}" "$jvms"/*; do
        if [ -n "$home" ] && usable "$home"; then
            mkdir -p "$(dirname "$link")"
            ln -sfn "$(readlink -f "$home")" "$link"
            return 0
        fi
    done
    return 1
}

find_java && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "headrace: no Java 17 or 21 found; installing one with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >&2 || true
    for version in 17 21; do
        if apt-get install -y -qq --no-install-recommends "openjdk-$version-jre-headless" >/dev/null && find_java; then
            exit 0
        fi
    done
fi
echo "headrace: Spark needs Java 17 or 21: install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME" >&2
exit 1
