#!/bin/bash
# make docs: builds the site of docs/ in .build/site, with API pages from the docstrings. Fails if a
# link leads nowhere. --serve: serves it, and builds again after each change.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environments.sh

python="$(find_python "$TENSORFLOW_PYTHONS")" || fail "the site needs one of the Pythons $TENSORFLOW_PYTHONS"
make_requirements .venv/docs "$python" mkdocs-material==9.8.1 'mkdocstrings[python]==1.0.8' ruff
export NO_MKDOCS_2_WARNING=1
case "$*" in
    "")
        # With --quiet, --strict would see no warning of a dead link.
        .venv/docs/bin/mkdocs build --strict 2>&1 | { grep -v '^INFO' || true; }
        echo "the site is in .build/site/index.html"
        ;;
    --serve) .venv/docs/bin/mkdocs serve ;;
    *) fail "usage: scripts/build_site.sh [--serve]" ;;
esac
