#!/usr/bin/env bash
# Installs what tests need and this machine lacks, where that needs no question (root on Debian); else says what is
# missing. Running it again changes nothing.
set -euo pipefail

POSTGRES_MINIMUM=15

postgres_is_found() {
  local candidate version
  for candidate in \
    "${POSTGRES_BIN:+$POSTGRES_BIN/postgres}" "$(command -v postgres || true)" \
    /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres \
    /opt/homebrew/opt/postgresql*/bin/postgres /usr/local/opt/postgresql*/bin/postgres \
    /Applications/Postgres.app/Contents/Versions/*/bin/postgres; do
    [ -x "$candidate" ] || continue
    version=$("$candidate" --version | sed -E 's/^[^0-9]*([0-9]+).*$/\1/')
    [ "$version" -ge "$POSTGRES_MINIMUM" ] && return 0
  done
  return 1
}

is_found() {
  # Debian keeps servers where only root looks.
  PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null
}

wanted=()
postgres_is_found || wanted+=(postgresql)
is_found pgbouncer || wanted+=(pgbouncer)
is_found python3 || wanted+=(python3)
python3 -c 'import psycopg2' 2>/dev/null || /usr/bin/python3 -c 'import psycopg2' 2>/dev/null || wanted+=(python3-psycopg2)
is_found git || wanted+=(git)

if [ ${#wanted[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ] && command -v apt-get >/dev/null; then
    echo "== prepare: installing ${wanted[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # An image may come without lists, and lists grow old: ask again only when the install fails.
    apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null 2>&1 || {
      apt-get update -qq
      apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
    }
  else
    echo "== prepare: missing ${wanted[*]}; tests that need one of them are skipped by name" >&2
  fi
fi

if ! postgres_is_found && [ -z "${DATABASE_URL:-}" ]; then
  echo "Missing: a PostgreSQL server, $POSTGRES_MINIMUM or newer: install it, or name one in DATABASE_URL" >&2
  exit 1
fi

if [ -e tests/cluster/go.mod ] && ! is_found go; then
  echo "Missing: go, for tests/cluster (its version is in tests/cluster/go.mod)" >&2
  exit 1
fi
