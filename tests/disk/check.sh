#!/usr/bin/env bash
# A full disk on btrfs: paid calls are refused, the process lives, says that it is ready within 100 ms and little in its log, where no line
# is an ERROR, and calls are served again once there is room.
#
# Needs root, a loop device and mkfs.btrfs: without them it says so and ends with 77.
set -euo pipefail

usage() {
    cat <<'TEXT'
Usage: tests/disk/check.sh TOLLGATE

Runs the demo of this binary on a btrfs of 150 MB in a file, fills it, and asks. Exits with 0 when all is well, 1 when something is not, 77
when this machine has no btrfs, no loop device, or not the right to mount one.
TEXT
}
case ${1:-} in -h | --help) usage; exit 0 ;; '') usage >&2; exit 2 ;; esac
tollgate=$(realpath "$1")

place=$(mktemp -d)
mounted=no process=''
clean() {
    if [ -n "$process" ]; then kill -9 "$process" 2>/dev/null || true; wait "$process" 2>/dev/null || true; fi
    if [ "$mounted" = yes ]; then umount "$place/disk"; fi
    rm -rf "$place"
}
trap clean EXIT
fail() { printf 'tests/disk: %s\n' "$*" >&2; tail -n 20 "$place/log" >&2 || true; exit 1; }

truncate -s 150M "$place/image"
mkdir "$place/disk"
if ! mkfs.btrfs -q "$place/image" >/dev/null 2>&1 || ! mount -o loop "$place/image" "$place/disk" 2>/dev/null; then
    printf '*** SKIPPED: no btrfs could be made or mounted here, so a full one was NOT tried. ***\n'
    exit 77
fi
mounted=yes

"$tollgate" demo --simulated --listen 127.0.0.1:0 --json --data-dir "$place/disk/demo" >"$place/greeting" 2>"$place/log" &
process=$!
for _ in $(seq 300); do
    if [ -s "$place/greeting" ]; then break; fi
    sleep 0.1
done
field() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$place/greeting" "$1"; }
key=$(field key) url=$(field base_url) admin=$(python3 - "$place/disk/demo/tollgate.yaml" <<'PYTHON'
import re, sys
print(re.search(r'^admin_listen: "([^"]+)"', open(sys.argv[1]).read(), re.M)[1])
PYTHON
)
# A probe over a connection of its own: what it is told, and how long that takes at most, in milliseconds.
slowest=0
probe() {
    local told
    told=$(curl -s -m 5 -w ' %{time_total}' "http://$admin/readyz") || fail "no answer to a probe"
    [ "${told%%$'\n'*}" = ready ] || fail "a probe was told: $told"
    slowest=$(python3 -c 'import sys; print(max(int(sys.argv[1]), round(1000 * float(sys.argv[2]))))' "$slowest" "${told##* }")
}
ask() {
    curl -s -m 10 -o /dev/null -w '%{http_code}' "$url/llm/chat" -H "Authorization: Bearer $key" -H 'Content-Type: application/json' \
        -d '{"model":"simulated/chat","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}' || true
}

[ "$(ask)" = 200 ] || fail "a call with room on the disk was not answered"
before=$(stat -c %s "$place/log")
for bytes in 1048576 65536 4096 512; do
    dd if=/dev/urandom of="$place/disk/fill.$bytes" bs="$bytes" 2>/dev/null || true
done
sync
refused=0
for _ in $(seq 40); do
    status=$(ask)
    case $status in
        200) ;;
        503) refused=$((refused + 1)) ;;
        *) fail "a call on a full disk was answered with $status" ;;
    esac
    probe
    sync
    kill -0 "$process" 2>/dev/null || fail "the process has ended on a full disk"
done
# Whoever goes on asking does not fill the log, which may be on the same disk.
for _ in $(seq 150); do ask >/dev/null; done
[ "$slowest" -le 100 ] || fail "a probe waited for $slowest ms"
grown=$(($(stat -c %s "$place/log") - before))
[ "$grown" -lt 20000 ] || fail "the log has grown by $grown bytes"
[ "$refused" -gt 0 ] || fail "the disk was not full: no call was refused"
# A start in another folder of the same disk: status 1, one line, the same from `check`, and nothing is left.
sed -e "s|$place/disk/demo|$place/disk/other|g" -e 's|^\([a-z_]*listen\): .*|\1: "127.0.0.1:0"|' "$place/disk/demo/tollgate.yaml" >"$place/other.yaml"
sed -i "s|^catalogue: .*|catalogue: \"$place/disk/demo/catalogue.yaml\"|" "$place/other.yaml"
timeout 5 "$tollgate" serve --conf "$place/other.yaml" >"$place/told" 2>&1 && fail "a gateway starts on a full disk"
if ! grep -q 'data_dir: .*the disk is full' "$place/told" || [ "$(wc -l <"$place/told")" != 1 ]; then fail "a start says: $(cat "$place/told")"; fi
{ "$tollgate" check --conf "$place/other.yaml" 2>&1 || true; } | grep -xF "$(cat "$place/told")" >"$place/same" || fail "check says something else than $(cat "$place/told")"
[ ! -e "$place/disk/other" ] || fail "a start on a full disk leaves $(ls "$place/disk/other")"
rm "$place/disk"/fill.*
for _ in $(seq 100); do
    status=$(ask)
    if [ "$status" = 200 ]; then break; fi
    sleep 0.1
done
[ "$status" = 200 ] || fail "calls are still refused, with $status, though there is room again"
"$tollgate" ledger audit --conf "$place/disk/demo/tollgate.yaml" >"$place/audit" || fail "the books do not balance: $(cat "$place/audit")"
# A disk that has room again within a minute needs nobody: one line says that it is full, and none is an ERROR.
told=$(tail -c "+$((before + 1))" "$place/log")
full=$(grep -c ' WARN .*new paid calls are refused: .*disk is full' <<<"$told" || true)
[ "$full" = 1 ] || fail "$full lines say that the disk is full, not one"
errors=$(grep ' ERROR ' <<<"$told" || true)
[ -z "$errors" ] || fail "there are ERROR lines: $errors"
printf 'a full btrfs: %d of 40 calls refused, none lost; a probe waited for %d ms at most, the log grew by %d bytes; served again with room\n' \
    "$refused" "$slowest" "$grown"
