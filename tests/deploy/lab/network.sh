# shellcheck shell=bash
# A network namespace with a way out through this machine, which is as it was before once `network_down` is done.

NETWORK=${NETWORK:-mgclust-lab}
OUTSIDE=10.213.77.1 INSIDE=10.213.77.2

network_up() {
    local device mtu
    network_down
    device=$(ip -o route show default | awk '{for (i = 1; i < NF; i++) if ($i == "dev") {print $(i + 1); exit}}')
    mtu=$(cat "/sys/class/net/$device/mtu")
    ip netns add "$NETWORK"
    ip link add lab-out mtu "$mtu" type veth peer name lab-in mtu "$mtu" netns "$NETWORK"
    ip address add "$OUTSIDE/30" dev lab-out
    ip link set lab-out up
    ip -n "$NETWORK" address add "$INSIDE/30" dev lab-in
    ip -n "$NETWORK" link set lab-in up
    ip -n "$NETWORK" link set lo up
    ip -n "$NETWORK" route add default via "$OUTSIDE"
    cat /proc/sys/net/ipv4/ip_forward >"$LAB/ip_forward"
    echo 1 >/proc/sys/net/ipv4/ip_forward
    iptables -t nat -A POSTROUTING -s "$OUTSIDE/30" -o "$device" -j MASQUERADE
    # Where the machine's rules forward nothing by default.
    iptables -I FORWARD -i lab-out -j ACCEPT
    iptables -I FORWARD -o lab-out -j ACCEPT
    echo "$device" >"$LAB/network"
    echo "$mtu" >"$LAB/mtu"
}

network_down() {
    if [[ -e "$LAB/network" ]]; then
        iptables -t nat -D POSTROUTING -s "$OUTSIDE/30" -o "$(cat "$LAB/network")" -j MASQUERADE || true
        iptables -D FORWARD -i lab-out -j ACCEPT || true
        iptables -D FORWARD -o lab-out -j ACCEPT || true
        cat "$LAB/ip_forward" >/proc/sys/net/ipv4/ip_forward
        rm -f "$LAB/network" "$LAB/ip_forward"
    fi
    ip link delete lab-out 2>/dev/null || true
    ip netns delete "$NETWORK" 2>/dev/null || true
}

# ports ADDRESS PORT...: those of them that take a connection.
ports() {
    python3 - "$@" <<'END'
import socket
import sys

for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), 2).close()
        print(port)
    except OSError:
        pass
END
}
