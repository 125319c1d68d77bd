#!/bin/sh
# Run a container: container.sh FOLDER COMMAND...
# It is called in its own mount namespace, and in the network, host name and process namespaces of its pod. Its
# root is that of this machine under a layer in memory, which disappears with the namespace.
set -eu
folder=$1
shift

layers=$folder/layers
mount -t tmpfs -o mode=755 tmpfs "$layers"
mkdir -p "$layers/lower/etc" "$layers/upper" "$layers/work" "$layers/root"
mkdir -m 755 "$layers/lower/root"  # Python may be installed there, and users must reach it
: > "$layers/lower/etc/hosts"
: > "$layers/lower/etc/resolv.conf"  # all names are in /etc/hosts
while IFS='|' read -r source target options; do
    if [ -d "$source" ]; then
        mkdir -p "$layers/lower$target"
    else
        mkdir -p "$layers/lower$(dirname "$target")"
        : > "$layers/lower$target"
    fi
done < "$folder/mounts"

root=$layers/root
if [ "$LAB_READ_ONLY" = true ]; then
    mount -t overlay overlay -o "lowerdir=$layers/lower:/" "$root"
else
    cp -a "$layers/lower/." "$layers/upper"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$layers/upper,workdir=$layers/work" "$root"
fi
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t sysfs -o ro sysfs "$root/sys"  # of the pod's network
if [ -n "$LAB_CGROUP" ]; then
    echo 0 > "$LAB_CGROUP/cgroup.procs"  # this process
    mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/memory"
    mount --bind -o ro "$LAB_CGROUP" "$root/sys/fs/cgroup/memory"
fi
while IFS='|' read -r source target options; do
    mount --bind "$source" "$root$target"
    if [ "$options" = ro ]; then mount -o remount,bind,ro "$root$target"; fi
done < "$folder/mounts"

if [ ! -e "$root$LAB_PROJECT/pyproject.toml" ]; then  # it is below a volume, such as /tmp
    mkdir -p "$root$LAB_PROJECT"
    mount --bind "$LAB_PROJECT" "$root$LAB_PROJECT"
    mount -o remount,bind,ro "$root$LAB_PROJECT"
fi

working=$LAB_WORKING
privileges=$LAB_PRIVILEGES
unset LAB_READ_ONLY LAB_CGROUP LAB_PROJECT LAB_WORKING LAB_PRIVILEGES
# shellcheck disable=SC2086
exec chroot "$root" setpriv --pdeathsig KILL $privileges sh -c 'cd "$0" && exec "$@"' "$working" "$@"
