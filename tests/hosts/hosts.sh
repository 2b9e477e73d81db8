#!/bin/bash
# Makes hosts out of this machine and runs a command that starts ranks on them. Everything goes with the namespaces
# that it runs in: unshare --net --mount hosts.sh ...
# usage: hosts.sh HOSTS SLOTS FOLDER COMMAND...
#   HOSTS    host1, host2, ...: each with eth0 in 10.77.0.0/24, ib0 in 10.78.0.0/24, and a docker0 that leads nowhere
#   SLOTS    ranks a host
#   FOLDER   gets `hosts`, the hostfile, and `agent`, which takes the place of ssh
set -euo pipefail

readonly hosts=$1 slots=$2 folder=$3
shift 3

# A host is a network namespace; ip wants to name them in a folder that belongs to nobody else.
mount -t tmpfs none /run
mkdir /run/netns

ip link set lo up
for network in 77 78; do
  ip link add "bridge$network" type bridge
  ip addr add "10.$network.0.254/24" dev "bridge$network"
  ip link set "bridge$network" up
done

connect() { # HOST NUMBER NETWORK INTERFACE
  ip link add "$1.$3" type veth peer name "$4" netns "$1"
  ip link set "$1.$3" master "bridge$3" up
  ip -n "$1" addr add "10.$3.0.$2/24" dev "$4"
  ip -n "$1" link set "$4" up
}

for ((number = 1; number <= hosts; ++number)); do
  host=host$number
  ip netns add "$host"
  ip -n "$host" link set lo up
  ip -n "$host" link add docker0 type bridge
  ip -n "$host" addr add 172.17.0.1/16 dev docker0
  ip -n "$host" link set docker0 up
  connect "$host" "$number" 77 eth0
  connect "$host" "$number" 78 ib0
  echo "$host slots=$slots" >>"$folder/hosts"
done

cat >"$folder/agent" <<'END'
#!/bin/bash
# HOST COMMAND...
exec ip netns exec "$1" unshare --uts /bin/bash -c "hostname $1; ${*:2}"
END
chmod +x "$folder/agent"

exec "$@"
