#!/usr/bin/env bash
# Steps of the students' images, one per layer, ordered from rare to frequent changes. cpu.Dockerfile, gpu.Dockerfile and
# the tests run these very lines.
#
#   install.sh system        Debian or Ubuntu packages (root)
#   install.sh people        a passwd in which each person of a Hub has a name (root)
#   install.sh torch cpu     an environment in $VENV, and torch: the CPU build from $TORCH_INDEX; `torch gpu`: the CUDA build
#   install.sh kit cpu       the kit from $SRC, JupyterLab and what a Hub needs; `kit gpu`: with CUDA's compiler and bindings
#   install.sh check         check that the packages fit together
#   install.sh home          the labs from $SRC in $HOME, writable for the group (root)
set -euo pipefail

: "${SRC:=/src}" "${VENV:=/opt/venv}" "${PYTHON:=python3}" "${ETC:=/etc}" "${EXTRAUSERS:=/var/lib/extrausers}"
: "${OWNER:=1000:100}"
# Empty: the index that pip is configured for. `-` and not `:-`, so that an empty value stays empty.
TORCH_INDEX=${TORCH_INDEX-https://download.pytorch.org/whl/cpu}
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() { echo "install.sh: $*" >&2 && exit 2; }

system() {
  # g++ compiles the CUDA labs' kernels for the CPU, and triton's launchers; nbgitpuller needs git; tini reaps orphans of kernels.
  apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    ca-certificates g++ git libnss-extrausers openssh-client python3 python3-dev python3-venv tini
  rm -rf /var/lib/apt/lists/*
}

people() {
  # start.sh adds a name for the uid as which a Hub starts a server.
  sed -i '/^ubuntu:/d' "$ETC/passwd"
  echo "jovyan:x:1000:100::/home/jovyan:/bin/bash" >>"$ETC/passwd"
  sed -i 's/^passwd:.*/& extrausers/' "$ETC/nsswitch.conf"
  install -d -m 755 "$EXTRAUSERS"
  install -m 666 /dev/null "$EXTRAUSERS/passwd"
}

pip_install() { "$VENV/bin/python" -m pip --disable-pip-version-check install -q "$@"; }

torch() {
  local pin
  pin=$(grep -m1 '^torch==' "$SRC/constraints.txt") || fail "$SRC/constraints.txt pins no torch"
  "$PYTHON" -m venv "$VENV"
  case $1 in
    cpu) pip_install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$pin" ;;
    gpu) pip_install -c <(pins) "$pin" triton ;;
  esac
}

kit() {
  case $1 in
    cpu) pip_install -c <(pins) "$SRC[labs,cuda]" -r "$HERE/hub.txt" ;;
    gpu) pip_install -c <(pins) "$SRC[labs,gpu]" -r "$HERE/hub.txt" -r "$HERE/gpu.txt" ;;
  esac
}

# constraints.txt pins the JupyterHub of `make hub`; other Hubs have other versions.
pins() { grep -v '^jupyterhub==' "$SRC/constraints.txt"; }

check() {
  "$VENV/bin/python" -m pip --disable-pip-version-check check
  "$VENV/bin/labkit" --version
  "$VENV/bin/jupyterhub-singleuser" --version
}

home() {
  # On a Hub each person's own volume is mounted over it. Elsewhere a server starts as any uid, with gid 100.
  mkdir -p "$HOME"
  cp -r "$SRC/labs" "$HOME/"
  chown -R "$OWNER" "$HOME"
  chmod -R u=rwX,g=rwX,o=rX "$HOME"
}

case "${1-} ${2-}" in
  "system " | "people " | "check " | "home ") "$1" ;;
  "torch cpu" | "torch gpu" | "kit cpu" | "kit gpu") "$1" "$2" ;;
  *) fail "expected one of: system, people, torch cpu|gpu, kit cpu|gpu, check, home; got '${*-}'" ;;
esac
