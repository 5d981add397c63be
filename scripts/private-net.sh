#!/bin/sh
# Runs a program in a new network namespace, in which it may create interfaces and open raw sockets. The namespace has
# no name, and ends with its last process.
#   private-net.sh PROGRAM [ARG ...]
set -eu
if [ "$(id -u)" = 0 ]; then user=''; else user='--user --map-root-user'; fi
# /sys is mounted to show the interfaces of this namespace, /sys/fs/bpf in it because ip pins the maps of XDP programs
# there, and /run/netns so that `ip netns add` leaves no names behind.
exec unshare $user --net --mount -- sh -c '
  {
    mkdir -p /run/netns && mount -t tmpfs none /run/netns
    mount -t sysfs none /sys && mount -t bpf none /sys/fs/bpf
    ip link set lo up
  } 2>/dev/null
  exec "$@"' sh "$@"
