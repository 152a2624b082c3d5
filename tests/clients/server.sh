# One real server for one suite: with a separate folder, port and log.
# Sourced by ./test and by the measuring scripts; not run by itself.
#
#   server_start NAME [flags]   starts $SHEAF_BINARY and waits until it accepts;
#                               sets SHEAF_URI, SHEAF_SOCKET, server_pid, server_dir
#                               SHEAF_FLAGS, if set, are flags of every server
#   server_stop                 SIGTERM, and SIGKILL if the server does not stop
#
# Invariant: a script that sources this calls server_stop on every exit, so no
# server outlives the script that started it.

server_pid=
server_dir=
server_log=

# A free port, chosen by the kernel. That another process takes it
# before the server does is possible and shows as a failed start.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Whether a process accepts on this loopback port.
accepts() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

server_start() {
    local name=$1 port
    shift
    port=$(free_port)
    # Short, because the path of a unix socket ends at 107 bytes.
    server_dir=$(mktemp -d "${TMPDIR:-/tmp}/sheaf-$name.XXXXXX")
    mkdir -p "$LOGS"
    server_log=$LOGS/$name.server.log
    "$SHEAF_BINARY" --dbpath "$server_dir" --port "$port" --unixSocketPrefix "$server_dir" ${SHEAF_FLAGS:-} "$@" >"$server_log" 2>&1 &
    server_pid=$!
    export SHEAF_URI="mongodb://127.0.0.1:$port/"
    export SHEAF_SOCKET="$server_dir/mongodb-$port.sock"
    export SHEAF_PID=$server_pid SHEAF_DBPATH=$server_dir
    local tries=0
    until accepts "$port"; do
        if ! kill -0 "$server_pid" 2>/dev/null; then
            echo "the server for '$name' ended while starting:" >&2
            server_tail
            return 1
        fi
        tries=$((tries + 1))
        if [ "$tries" -gt 200 ]; then
            echo "the server for '$name' accepts nothing on port $port after 20 seconds:" >&2
            server_tail
            return 1
        fi
        sleep 0.1
    done
}

# The last lines the server wrote, for a suite that failed.
server_tail() {
    [ -n "$server_log" ] && [ -e "$server_log" ] || return 0
    echo "--- last lines of ${server_log#"$PWD/"}:" >&2
    tail -n "${1:-25}" "$server_log" | cut -c1-600 >&2
}

# Whether the server was still running when the suite ended.
server_alive() { [ -n "$server_pid" ] && kill -0 "$server_pid" 2>/dev/null; }

server_stop() {
    if [ -n "$server_pid" ]; then
        if kill -TERM "$server_pid" 2>/dev/null; then
            local tries=0
            while kill -0 "$server_pid" 2>/dev/null && [ "$tries" -lt 100 ]; do
                sleep 0.1
                tries=$((tries + 1))
            done
            kill -KILL "$server_pid" 2>/dev/null || true
        fi
        wait "$server_pid" 2>/dev/null || true
        server_pid=
    fi
    if [ -n "$server_dir" ]; then
        rm -rf "$server_dir"
        server_dir=
    fi
}
