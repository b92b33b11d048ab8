#!/usr/bin/env bash
# Links a Java that Spark runs on (17 or 21) to the path given: that of JAVA_HOME, of PATH, or another installed one.
# Without any, the distribution's package manager installs one, for root or where sudo asks for no password; anyone else
# is told what to install.
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

# How to become root; fails where only a password would help.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

may_install() {
    as_root true 2>/dev/null
}

# Installs a version with the package manager named.
install_java() {
    case $1 in
        apt-get) as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "openjdk-$2-jre-headless" ;;
        dnf) as_root dnf install -y -q "java-$2-openjdk-headless" ;;
        zypper) as_root zypper --non-interactive --quiet install "java-$2-openjdk-headless" ;;
        apk) as_root apk add --quiet "openjdk$2-jre-headless" ;;
    esac >/dev/null
}

find_java && exit 0
for manager in apt-get dnf zypper apk; do
    if command -v "$manager" >/dev/null && may_install; then
        echo "headrace: no Java 17 or 21 found; installing one with $manager" >&2
        [ "$manager" != apt-get ] || as_root apt-get update -qq >&2 || true
        for version in 17 21; do
            if install_java "$manager" "$version" && find_java; then
                exit 0
            fi
        done
    fi
done
echo "headrace: Spark needs Java 17 or 21: install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME" >&2
exit 1
