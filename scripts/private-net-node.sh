#!/bin/sh
# The node program WASM_ROCE_NODE in a new network namespace.
exec "$(dirname "$0")/private-net.sh" "$WASM_ROCE_NODE" "$@"
