#!/usr/bin/env bash
# Build the sdist and from it the wheel, install the wheel into empty environments with the oldest and the newest
# versions that pyproject.toml allows, and try it there.
#
#     tools/smoke.sh [oldest] [newest]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(oldest newest)

"$python" -m venv "$work/builder"
"$work/builder/bin/pip" install --quiet --disable-pip-version-check build
"$work/builder/bin/python" -m build --outdir "$work/dist" "$root" >"$work/build.log" || {
    cat "$work/build.log"
    exit 1
}
ls "$work/dist"
"$python" "$root/tools/oldest_versions.py" >"$work/oldest.txt"
touch "$work/newest.txt"

for which in "${versions[@]}"; do
    echo "== $which"
    "$python" -m venv "$work/$which"
    "$work/$which/bin/pip" install --quiet --disable-pip-version-check \
        --constraint "$work/$which.txt" "$work"/dist/*.whl
    (cd "$work" && "$work/$which/bin/python" "$root/tools/smoke.py")
done
