#!/bin/sh
# Make the virtual environment named by $1 from requirements.lock, with $PYTHON or else the first Python that will do.
# Settings of pip (PIP_INDEX_URL, PIP_FIND_LINKS, ...) are honoured.
set -eu
venv=$1

good() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' >/dev/null 2>&1
}

found=
if [ -n "${PYTHON:-}" ]; then
    set -- "$PYTHON"
else
    set -- python3.11 python3.12 python3.13 python3.14 python3 python
fi
for python in "$@"; do
    if good "$python"; then
        found=$python
        break
    fi
done
if [ -z "$found" ]; then
    named=${PYTHON:+"$PYTHON is not a Python"}
    echo "${named:-There is no Python} from 3.11 to 3.14 with venv and pip." >&2
    echo "Install one (Debian, Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python" >&2
    exit 1
fi

echo "Setting up $venv with $("$found" --version); once, a few minutes."
"$found" -m venv "$venv"
# Python compiles a module when it is first imported. If pip compiled all of them, this would take half as long again.
if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --requirement requirements.lock
then
    echo "Installing requirements.lock failed. Behind a proxy or without a network, PIP_INDEX_URL or PIP_FIND_LINKS can" >&2
    echo "name another source of packages. Running make again goes on from here." >&2
    exit 1
fi
cp requirements.lock "$venv/installed"  # newer than the lock: make does nothing until the lock changes
